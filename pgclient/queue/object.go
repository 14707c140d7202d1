package queue

// Checks of texts before they are sent to PostgreSQL, whose own refusal would not say which of several
// values it means.

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// CheckUTF8 returns a usage error if a value of the command line is not UTF-8; name says which value
// it is, such as --comment.
func CheckUTF8(name, v string) error {
	at := 0
	for ; at < len(v); at++ {
		r, size := utf8.DecodeRuneInString(v[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size - 1
	}
	if at == len(v) {
		return nil
	}
	from, to := strings.LastIndexByte(v[:at], ' ')+1, len(v)
	if end := strings.IndexByte(v[at:], ' '); end >= 0 {
		to = at + end
	}
	word := v[max(from, at-30):min(to, at+30)]
	return NewError(KindUsage, fmt.Sprintf("%s is not UTF-8: %s", name, strconv.QuoteToASCII(word)), "command line", "set the terminal and the locale to UTF-8, or convert the text")
}

// object is how a JSON object is written, for those whose text is none.
const object = `write it like {"id": 1}`

// CheckObject returns a usage error if a text is not a JSON object that PostgreSQL can store; where is
// its place, such as --payload. It says nothing of \u0000: the refusal of the server is clear.
func CheckObject(where, text string) error {
	_, err := readObject(where, text)
	return err
}

// readObject returns the values of a JSON object that PostgreSQL can store; see CheckObject.
func readObject(where, text string) (map[string]json.RawMessage, error) {
	refuse := func(what, do string) error { return NewError(KindUsage, "the payload "+what, where, do) }
	if !utf8.ValidString(text) {
		return nil, refuse("is not UTF-8", "convert it to UTF-8, or write other characters than ASCII as \\u and four digits")
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &values); err != nil || values == nil {
		return nil, NewError(KindUsage, "the payload is not a JSON object", where, object).Because(err)
	}
	for _, escape := range escapes.FindAllString(text, -1) {
		if len(escape) == len(`\ud83d`) {
			return nil, refuse("has "+escape+" alone, half of a character", `write the character itself, or both halves, such as \ud83d\ude00`)
		}
	}
	for _, n := range tokens.FindAllString(text, -1) {
		if n[0] != '"' && !storable(n) {
			return nil, refuse("has a number that PostgreSQL cannot store, "+Clean(n).Cut(40).String(), "write it as text, in quotes")
		}
	}
	return values, nil
}

var (
	// escapes matches what follows a backslash in JSON: a pair of surrogates, one surrogate alone, or one
	// character.
	escapes = regexp.MustCompile(`\\(?:u[dD][89abAB][[:xdigit:]]{2}\\u[dD][c-fC-F][[:xdigit:]]{2}|u[dD][89a-fA-F][[:xdigit:]]{2}|.)`)
	// tokens matches the strings and the numbers of JSON.
	tokens = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*`)
)

// storable reports whether a number of JSON is within the range of numeric: 131072 digits before the
// decimal point, 16383 after it.
func storable(number string) bool {
	number, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(number, "-")), "e")
	whole, fraction, _ := strings.Cut(number, ".")
	shift := 0
	if exponent != "" {
		n, err := strconv.ParseInt(exponent, 10, 32)
		if err != nil || n > 1<<30-2 || n < -(1<<30-2) {
			return false
		}
		shift = int(n)
	}
	zeros := len(whole+fraction) - len(strings.TrimLeft(whole+fraction, "0"))
	before := len(whole) - zeros + shift // digits before the decimal point, from the first that is not 0
	return (before <= 131072 || zeros == len(whole+fraction)) && len(fraction)-shift <= 16383
}
