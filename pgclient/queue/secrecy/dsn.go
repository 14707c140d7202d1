package secrecy

// Connection strings are checked before a driver or resolver sees them. If a string can be parsed
// in two ways, a parser that chooses the wrong one could take a piece of the password for something
// that it prints or looks up.

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	encodeIt = "percent-encode the password (@ as %40, : as %3A, / as %2F, ? as %3F, # as %23, % as %25), or keep it in ~/.pgpass or PGPASSWORD"
	quoteIt  = "write key=value pairs, a value with spaces in single quotes, or postgres://USER@HOST:PORT/DATABASE"
)

// CheckDSN says what is wrong with a connection string, and what to do, without repeating any of
// it. Both results are empty if the string can be parsed in only one way.
func CheckDSN(dsn string) (what, do string) {
	scheme, rest, isURL := strings.Cut(dsn, "://")
	if isURL && strings.ContainsAny(scheme, "= \t\r\n'") { // a URL among key=value pairs
		isURL = false
	}
	if !isURL {
		pairs, ok := Pairs(dsn)
		for _, p := range pairs {
			// An @ in a parameter that no driver knows is probably part of a password.
			ok = ok && (!strings.Contains(p[1], "@") || secretName.MatchString(p[0]+"=") || slices.Contains(plainKeys(), strings.ToLower(p[0])))
		}
		if !ok {
			return "is neither a URL nor key=value pairs", quoteIt
		}
		return "", ""
	}
	authority := rest[:endOf(rest, "/?#")]
	userinfo, hosts, named := cutLast(authority, "@")
	switch {
	case strings.ContainsRune(rest, '#'), strings.Count(rest, "@") > 1, !named && strings.ContainsRune(rest, '@'):
		return "can be read in two ways: it contains an unescaped @ or #", encodeIt
	case !hostList(hosts):
		return "has a host or port that cannot be one", encodeIt
	case strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "holds a space or a control character unescaped", encodeIt
	}
	if _, err := url.PathUnescape(userinfo + hosts); err != nil {
		return "has a % that begins no escape", encodeIt
	}
	path, query, _ := strings.Cut(rest[len(authority):], "?")
	if strings.ContainsAny(path, ":=&") {
		return "can be read in two ways: the name of its database goes on with something else", encodeIt
	}
	if query != "" {
		for p := range strings.SplitSeq(query, "&") {
			if name, val, ok := strings.Cut(p, "="); !ok || !keyName.MatchString(name) || strings.Contains(val, "?") {
				return "has something behind its ? that is not key=value", encodeIt
			}
		}
	}
	return "", ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	at := strings.LastIndex(s, sep)
	if at < 0 {
		return "", s, false
	}
	return s[:at], s[at+len(sep):], true
}

var hostPorts = regexp.MustCompile("^((\\[[0-9A-Za-z:.%]*\\]|[^]\\s:@\\[,{}$!*|&=;()\"'`<>\\\\^~+]*)(:[0-9]+)?(,|$))*$")

// hostList reports whether s consists only of hosts with ports.
func hostList(s string) bool { return hostPorts.MatchString(s) }

// CheckHost says why a text that was parsed as a host cannot be one; it does not repeat the
// text, which may be a piece of a password.
func CheckHost(host string) (what, do string) {
	if host == "" || host[0] == '/' || host[0] == '@' { // paths of sockets
		return "", ""
	}
	if _, err := netip.ParseAddr(host); err == nil || !strings.ContainsAny(host, "@:/?#%=&\\ \t\r\n\"'`;<>{}|^*$!()[]+~,") {
		return "", ""
	}
	return "names a host that cannot be one", "give the host alone; " + encodeIt
}

var keyName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// CheckName says why a text that was parsed as a user or a database cannot be one.
func CheckName(name string) (what, do string) {
	if strings.Contains(name, "=") || strings.Contains(name, "://") {
		return "names a user or database that goes on with something else", quoteIt
	}
	return "", ""
}

// Parameter returns the value of a parameter of a connection string, "" if it has none.
func Parameter(dsn, name string) string {
	if _, rest, ok := strings.Cut(dsn, "://"); ok {
		_, query, _ := strings.Cut(rest, "?")
		values, err := url.ParseQuery(query)
		if err != nil {
			return ""
		}
		return values.Get(name)
	}
	pairs, _ := Pairs(dsn)
	for _, p := range pairs {
		if p[0] == name {
			return p[1]
		}
	}
	return ""
}

// Pairs parses libpq's form: key = value, the value bare or in single quotes, with backslash
// escapes in both. ok is false if the text does not have this form.
func Pairs(s string) (pairs [][]string, ok bool) {
	const space = " \t\r\n\v\f"
	for s = strings.TrimLeft(s, space); s != ""; s = strings.TrimLeft(s, space) {
		name, rest, found := strings.Cut(s, "=")
		if name = strings.TrimRight(name, space); !found || !keyName.MatchString(name) {
			return pairs, false
		}
		s = strings.TrimLeft(rest, space)
		if strings.HasPrefix(s, "'") {
			end := closing(s)
			if end == len(s) {
				return pairs, false
			}
			pairs = append(pairs, []string{name, s[1:end]})
			if s = s[end+1:]; s != "" && !strings.ContainsAny(s[:1], space) {
				return pairs, false // text after the closing quote
			}
			continue
		}
		at := 0
		for at < len(s) && !strings.ContainsRune(space, rune(s[at])) {
			if s[at] == '\\' {
				at++
			}
			at++
		}
		at = min(at, len(s))
		pairs = append(pairs, []string{name, s[:at]})
		s = s[at:]
	}
	return pairs, true
}
