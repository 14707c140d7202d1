package sender

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// leastOwn is the shortest part of a URL in bytes that is hidden: shorter ones are in many texts.
const leastOwn = 6

// plainPart matches the parts of a URL that are no token, as fn_mask_url does: words of letters,
// joined by . _ or - or as in orderCreated, with a short number at the end.
var plainPart = regexp.MustCompile(`^(?:(?:[A-Z]?[a-z]{1,16}|[A-Z]{1,8})(?:[._-](?:[A-Z]?[a-z]{1,16}|[A-Z]{1,8})|[A-Z][a-z]{2,16}){0,4}[._-]?v?)?[0-9]{0,3}$`)

// hideOwn returns the text of a response, at most maxExcerpt bytes, without the parts of the request's own URL
// that may be a token: receivers repeat the URL in their error pages.
func hideOwn(excerpt, raw string) string {
	if len(excerpt) < leastOwn {
		return excerpt
	}
	parts := ownParts(raw)
	if len(parts) == 0 {
		return excerpt
	}
	pairs := make([]string, 0, 2*len(parts))
	for _, part := range parts {
		pairs = append(pairs, part, "•••")
	}
	hidden := strings.NewReplacer(pairs...).Replace(excerpt)
	if len(excerpt) > maxExcerpt-4 { // cut: the last bytes may be the beginning of a part
		hidden = cutBeginning(hidden, parts)
	}
	if hidden == excerpt {
		return excerpt
	}
	return clean(hidden, maxExcerpt)
}

// ownParts returns the parts of the path and query of a URL that may be a token, as written and
// decoded, the longest first, because a shorter one may be within it.
func ownParts(raw string) []string {
	u, err := url.Parse(raw)
	if err != nil {
		return nil
	}
	var parts []string
	add := func(part string, decode func(string) (string, error)) {
		forms := []string{part}
		if decoded, err := decode(part); err == nil && decoded != part {
			forms = append(forms, decoded)
		}
		for _, form := range forms {
			if len(form) >= leastOwn && !plainPart.MatchString(form) {
				parts = append(parts, form)
			}
		}
	}
	for part := range strings.SplitSeq(u.EscapedPath(), "/") {
		add(part, url.PathUnescape)
	}
	for pair := range strings.FieldsFuncSeq(u.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(pair, "=")
		add(name, url.QueryUnescape)
		add(value, url.QueryUnescape)
	}
	slices.SortFunc(parts, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return slices.Compact(parts)
}

// cutBeginning returns text without an end that is the beginning of a part.
func cutBeginning(text string, parts []string) string {
	for _, part := range parts {
		for n := len(part) - 1; n >= leastOwn; n-- {
			if strings.HasSuffix(text, part[:n]) {
				return text[:len(text)-n] + "•••"
			}
		}
	}
	return text
}
