package config

// Finds passwords in both forms of connection strings, so that they can be refused or masked.

import (
	"net/url"
	"regexp"
	"strings"
)

const masked = "****"

// span is a part of a string, given by its offsets.
type span struct{ from, to int }

// dsnText parses a connection string: a URL or key=value pairs. It checks only the form; judge, and
// later the driver, check the parts.
func dsnText(raw any, judge func(string) (what, do string)) (any, *bad) {
	v, b := plainText(raw)
	if b != nil {
		return nil, b
	}
	s, _ := v.(string)
	const do = "use postgres://USER@HOST:PORT/DATABASE or key=value pairs such as service=prod"
	switch scheme, _, isURL := strings.Cut(s, "://"); {
	case s == "":
	case isURL && scheme != "postgres" && scheme != "postgresql":
		return nil, &bad{"has a scheme that is not PostgreSQL's", do}
	case !isURL:
		if _, ok := pairs(s, secretParameter); !ok {
			return nil, &bad{"is neither a URL nor key=value pairs", do}
		}
	}
	if judge != nil && s != "" {
		if what, do := judge(s); what != "" {
			return nil, &bad{what, do}
		}
	}
	return s, nil
}

// hasPassword reports whether a connection string or URL contains a password.
func hasPassword(s string) bool { return len(passwords(s, secretParameter)) > 0 }

// suspicion says how sure it is that a text contains a password.
type suspicion int

const (
	harmless suspicion = iota
	doubt
	certainty
)

// suspect judges a text that may be no connection string, such as a word of a handler's command. A
// password is certain in a connection string and in a URL. In any other text, such as the words of a
// shell, what looks like one is a doubt, unless its value is only named ($PGPASSWORD, $(cat FILE)).
func suspect(s string) suspicion {
	if !hasPassword(s) {
		return harmless
	}
	switch scheme, _, isURL := strings.Cut(s, "://"); {
	case scheme == "postgres" || scheme == "postgresql":
		return certainty
	case isURL:
		u, err := url.Parse(s)
		if err != nil || u.Scheme == "" { // words of a shell before the URL
			return doubt
		}
		if pass, _ := u.User.Password(); pass == "" && !hasPassword("://?"+u.RawQuery) { // as in https://h:8443/@anna
			return harmless
		}
		return certainty
	}
	if _, ok := pairs(s, secretParameter); ok {
		return certainty
	}
	found, _ := pairs(s, func(name, val string) bool {
		return secretParameter(name, val) && !strings.HasPrefix(strings.TrimLeft(val, `"`), "$")
	})
	if len(found) > 0 {
		return doubt
	}
	return harmless
}

// maskDSN returns s with its passwords masked, and also the values of parameters that are not known
// to be harmless, because a typing error may have changed the name of the password's parameter. A
// text without any of these is returned unchanged.
func maskDSN(s string) string {
	var out strings.Builder
	at := 0
	for _, p := range passwords(s, doubtful) {
		out.WriteString(s[at:p.from])
		out.WriteString(masked)
		at = p.to
	}
	out.WriteString(s[at:])
	return out.String()
}

// passwords returns where in s passwords are, in order. If the end of a
// password is uncertain, the span is too long rather than too short: a masked
// database name does less harm than a visible password.
func passwords(s string, secret func(name, val string) bool) []span {
	start := strings.Index(s, "://")
	if start < 0 {
		found, _ := pairs(s, secret)
		return found
	}
	start += len("://")
	var found []span
	query := len(s)
	if q := strings.IndexByte(s[start:], '?'); q >= 0 {
		query = start + q
	}
	// The user ends at the last @ before the query, because a password may contain an unescaped @
	// or /. The driver takes an unescaped ? for the beginning of the query, but a reader of the
	// text would still see the rest of the password.
	at := strings.LastIndexByte(s[start:query], '@')
	if at < 0 && !hostList(s[start:query]) {
		at = strings.LastIndexByte(s[start:], '@')
	}
	if at >= 0 {
		if colon := strings.IndexByte(s[start:start+at], ':'); colon >= 0 && colon+1 < at {
			// The text contains a password, but it is uncertain where the
			// password ends; certainly not after the last @ of the whole text.
			at = strings.LastIndexByte(s[start:], '@')
			found = append(found, span{start + colon + 1, start + at})
			query = max(query, start+at)
		}
	}
	for at := query + 1; at < len(s); {
		end := len(s)
		if amp := strings.IndexByte(s[at:], '&'); amp >= 0 {
			end = at + amp
		}
		name, val, isPair := strings.Cut(s[at:end], "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		switch {
		case val != "" && secret(name, val):
			found = append(found, span{end - len(val), end})
		case !isPair && name != "" && secret("", name): // a blank separates the value from its name
			found = append(found, span{at, end})
		}
		at = end + 1
	}
	return found
}

// hostList reports whether the part between :// and the query consists only of
// hosts with ports, and a database.
func hostList(s string) bool {
	s, _, _ = strings.Cut(s, "/")
	return regexp.MustCompile(`^((\[[^\]@]*\]|[^:@\[\],]*)(:[0-9]*)?(,|$))*$`).MatchString(s)
}

func secretParameter(name, _ string) bool {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "password", "sslpassword", "oauth_client_secret":
		return true
	}
	return false
}

// doubtful reports whether a parameter may hold a password: because of its name, or because its
// value continues with another parameter.
func doubtful(name, val string) bool {
	if strings.Contains(val, "=") && name != "options" {
		return true
	}
	if name == "host" && strings.ContainsAny(val, "?#%&<>{}|") {
		return true
	}
	switch name {
	case "host", "hostaddr", "port", "dbname", "database", "user", "service", "servicefile", "passfile", "application_name",
		"sslmode", "sslcert", "sslkey", "sslrootcert", "sslsni", "sslcertmode", "sslnegotiation", "connect_timeout", "options",
		"target_session_attrs", "timezone", "search_path", "min_protocol_version", "max_protocol_version", "krbsrvname",
		"channel_binding", "require_auth", "statement_timeout", "lock_timeout", "client_encoding":
		return false
	}
	return true
}

// pairs parses connection strings of the form key=value, where the value may
// be in single quotes with backslash escapes. It returns where passwords are.
// ok is false if the text does not have this form; then everything from the
// first password on counts as password.
func pairs(s string, secret func(name, val string) bool) (found []span, ok bool) {
	const space = " \t\r\n"
	ok = true
	at := 0
	skip := func() {
		for at < len(s) && strings.IndexByte(space, s[at]) >= 0 {
			at++
		}
	}
	for skip(); at < len(s); skip() {
		equals := strings.IndexByte(s[at:], '=')
		if equals < 0 {
			ok = false
			break
		}
		begin := at
		// There must be one word before the =. Otherwise the text is broken, and its last word
		// counts as the name.
		name := ""
		words := strings.Fields(s[at : at+equals])
		if len(words) > 0 {
			name = words[len(words)-1]
		}
		ok = ok && len(words) == 1
		at += equals + 1
		skip()
		from := at
		var whole bool
		at, whole = pairValue(s, at)
		ok = ok && whole
		if at > from && secret(name, s[from:at]) {
			if !secret(name, "") { // the value, not the name, made it look like a password
				found = append(found, span{from, at})
				continue
			}
			if !secretParameter(name, "") { // the name itself may be a part of a password
				from = begin
			}
			found = append(found, span{from, at})
		}
	}
	if !ok && len(found) > 0 {
		found = []span{{found[0].from, len(s)}}
	}
	return found, ok
}

// pairValue returns the end of the value that begins at at, and whether its quotes are closed.
func pairValue(s string, at int) (end int, whole bool) {
	quoted := at < len(s) && s[at] == '\''
	if quoted {
		at++
	}
	for at < len(s) {
		switch {
		case s[at] == '\\' && at+1 < len(s):
			at++ // after a backslash, the next byte is no end of the value
		case quoted && s[at] == '\'':
			return at + 1, true
		case !quoted && strings.IndexByte(" \t\r\n", s[at]) >= 0:
			return at, true
		}
		at++
	}
	return at, !quoted
}
