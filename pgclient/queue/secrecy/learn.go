package secrecy

// Finding the secrets of a process: in its environment, in connection strings and other values, and
// in service and password files. When in doubt, a text is treated as secret: a masked host name
// does less harm than a visible password.

import (
	"encoding/base64"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/fileguard"
)

// mostFile is the largest part of a file that is read, in bytes; such files are far smaller.
const mostFile = 1 << 20

// Learn adds the secrets in these environment variables, and in the password and service files that
// the variables name and that the driver will read.
func Learn(environ []string) { process.Learn(environ) }

// LearnValue adds the secrets of one value, such as a connection string or a URL.
func LearnValue(v string) { process.LearnValue(v) }

// LearnText adds the secrets of a text with many values, such as a configuration file.
func LearnText(text string) { process.LearnText(text) }

// Learn is like the function Learn, for the secrets of k.
func (k *Keeper) Learn(environ []string) {
	env := map[string]string{}
	for _, entry := range environ {
		name, val, _ := strings.Cut(entry, "=")
		if _, twice := env[name]; !twice {
			env[name] = val
		}
		if strings.HasSuffix(strings.ToUpper(name), "PASSWORD") {
			k.Know(val)
		}
		k.LearnValue(val)
	}
	named := func(variable, home string) (path, setting string) {
		if path = env[variable]; path == "" && env["HOME"] != "" {
			return filepath.Join(env["HOME"], home), "the default of " + variable
		}
		return path, "env " + variable
	}
	path, setting := named("PGPASSFILE", ".pgpass")
	k.learnFile(path, setting, k.learnPassLine)
	k.learnServices(named("PGSERVICEFILE", ".pg_service.conf"))
	if dir := env["PGSYSCONFDIR"]; dir != "" {
		k.learnServices(filepath.Join(dir, "pg_service.conf"), "env PGSYSCONFDIR")
	}
}

// Unread returns the first file since the last call that could not be read because its file system did not
// answer, and what names it; "" if there is none. The driver would wait for it without a limit.
func Unread() (path, setting string) {
	process.mu.Lock()
	defer process.mu.Unlock()
	path, setting = process.unread.path, process.unread.setting
	process.unread = unread{}
	return path, setting
}

// unread is a file that could not be read in time.
type unread struct{ path, setting string }

// learnFile passes each line of a file to a function. setting says what names the file. A file that cannot be
// read is ignored. After one that cannot be read in time none is, until Unread: they may be on one file system.
func (k *Keeper) learnFile(path, setting string, line func(string)) {
	k.mu.RLock()
	waited := k.unread.path != ""
	k.mu.RUnlock()
	if waited {
		return
	}
	text, _, err := fileguard.Read(path, mostFile)
	if errors.Is(err, fileguard.ErrNoAnswer) {
		k.mu.Lock()
		k.unread = unread{path, setting}
		k.mu.Unlock()
	}
	for l := range strings.SplitSeq(string(text), "\n") { // the part before an error is used
		line(strings.TrimSuffix(l, "\r"))
	}
}

// learnPassLine reads host:port:database:user:password, where \ makes the next character literal.
// If the line does not have five fields, its last field counts as the secret.
func (k *Keeper) learnPassLine(line string) {
	if strings.HasPrefix(strings.TrimSpace(line), "#") {
		return
	}
	from, fields := 0, 0
	for at := 0; at < len(line) && fields < 4; at++ {
		switch line[at] {
		case '\\':
			at++
		case ':':
			fields++
			from = at + 1
		}
	}
	k.Know(line[min(from, len(line)):])
	k.LearnValue(line)
}

// plainKeys are the parameters of a connection string that are not secret.
func plainKeys() []string {
	return []string{
		"host", "hostaddr", "port", "dbname", "user", "service", "servicefile", "passfile", "sslmode", "sslcert", "sslkey",
		"sslrootcert", "sslcrl", "sslsni", "sslnegotiation", "sslcertmode", "application_name", "fallback_application_name",
		"connect_timeout", "options", "target_session_attrs", "keepalives", "client_encoding", "gssencmode", "krbsrvname",
		"channel_binding", "require_auth", "timezone", "search_path", "statement_timeout", "lock_timeout", "min_protocol_version", "max_protocol_version", "database",
		"statement_cache_capacity", "description_cache_capacity", "default_query_exec_mode",
	}
}

// learnServices reads a service file: the value of every key that is not in plainKeys is a
// secret.
func (k *Keeper) learnServices(path, setting string) {
	k.learnFile(path, setting, func(line string) {
		name, val, ok := strings.Cut(line, "=")
		if ok && !strings.HasPrefix(strings.TrimSpace(line), "#") && !slices.Contains(plainKeys(), strings.ToLower(strings.TrimSpace(name))) {
			k.Know(strings.TrimSpace(val))
		}
		k.LearnValue(line)
	})
}

var (
	secretName = regexp.MustCompile(`(?i)(?:pass\w{0,8}|oauth_client_secret)"?'?\s*[=:]\s*`)
	bareUser   = regexp.MustCompile(`^[^\s:=]*:([^\s].*)@`)
	lostURL    = regexp.MustCompile(`(?is)^(?:[^:]{0,2}post|[^:]{0,7}gres)[^:]{0,24}:.*[@=]`)
	assignment = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*'?([^&\s]+)`)
	serviceIn  = regexp.MustCompile(`(?i)(?:^|[\s?&])(servicefile|passfile)\s*=\s*'?([^\s&']+)`)
)

// LearnValue is like the function LearnValue, for the secrets of k.
func (k *Keeper) LearnValue(v string) {
	k.learnURL(v)
	k.learnParameters(v)
	if lostURL.MatchString(v) && !strings.Contains(v, "://") && !hasPlainPair(v) { // nobody can say which part is the password
		k.Know(v)
	}
	// If the value cannot be parsed with certainty, the password may reach to the end of the value.
	if at := secretName.FindStringIndex(v); at != nil {
		if what, _ := CheckDSN(v); what != "" {
			k.Know(v[at[1]:])
		}
	}
	for _, at := range secretName.FindAllStringIndex(v, -1) {
		val := v[at[1]:]
		switch {
		case val == "":
		case val[0] == '\'' || val[0] == '"':
			end := closing(val)
			k.Know(val[1:end], strings.ReplaceAll(val[1:end], `\`, ""))
			if after := val[min(end+1, len(val)):]; after != "" && !strings.ContainsAny(after[:1], " \t\r\n&,;:)]}\"'") {
				k.Know(val[:endOf(val, " \t\r\n")]) // the quotes are part of the secret, which goes on behind them
			}
		default:
			k.Know(val[:endOf(val, " \t\r\n")], val[:endOf(val, "& \t\r\n")])
		}
	}
	for _, m := range serviceIn.FindAllStringSubmatch(v, -1) {
		name := strings.ToLower(m[1])
		if setting := name + " of a connection string"; name == "servicefile" {
			k.learnServices(m[2], setting)
		} else {
			k.learnFile(m[2], setting, k.learnPassLine)
		}
	}
}

// learnParameters adds the value of each parameter of a connection string that is not known to
// be harmless, because a typing error may have changed the name "password". Typing errors may also
// have spoilt the form of the string; then every name=value in it counts as a parameter.
func (k *Keeper) learnParameters(v string) {
	all, _ := Pairs(v)
	if !hasPlainPair(v) {
		all = nil
		_, rest, isURL := strings.Cut(v, "://")
		if isURL {
			_, query, _ := strings.Cut(rest, "?")
			for p := range strings.SplitSeq(query, "&") {
				name, val, _ := strings.Cut(p, "=")
				all = append(all, []string{name, val})
			}
		}
		if what, _ := CheckDSN(v); what != "" || !isURL {
			for _, m := range assignment.FindAllStringSubmatch(v, -1) {
				all = append(all, m[1:])
			}
		}
		name, _, _ := strings.Cut(v, "=")
		if !isURL && !strings.HasPrefix(strings.ToLower(v), "postgres") && !slices.ContainsFunc(all, plain) {
			// no connection string, or one of another program, or one whose names are all misspelt
			if at := secretName.FindStringIndex(v); at != nil && keyName.MatchString(strings.TrimSpace(name)) {
				k.Know(v[at[1]:])
			}
			return
		}
	}
	for _, p := range all {
		switch {
		case !plain(p):
			k.Know(p...)
		case secretName.MatchString(p[1]): // a blank or a quote before the name of a secret is lost
			k.Know(p[1])
		}
	}
}

// plain reports whether a parameter of a connection string is known to be harmless.
func plain(p []string) bool { return slices.Contains(plainKeys(), strings.ToLower(p[0])) }

// hasPlainPair reports whether v is a connection string of pairs, one of them harmless.
func hasPlainPair(v string) bool {
	all, isPairs := Pairs(v)
	return isPairs && slices.ContainsFunc(all, plain)
}

// closing returns the position of the quote that closes the one at the start of s.
func closing(s string) int {
	for at := 1; at < len(s); at++ {
		switch s[at] {
		case '\\':
			at++
		case s[0]:
			return at
		}
	}
	return len(s)
}

func endOf(s, stops string) int {
	if at := strings.IndexAny(s, stops); at >= 0 {
		return at
	}
	return len(s)
}

// learnURL adds the text between the first colon after :// and the last @. Without an @, it adds
// the text in the position of the port if that is not a number.
func (k *Keeper) learnURL(v string) {
	scheme, rest, ok := strings.Cut(v, "://")
	if !ok || strings.Contains(scheme, ":") { // USER:PASSWORD@HOST without a scheme
		if m := bareUser.FindStringSubmatch(v); m != nil {
			k.Know(m[1])
		}
	}
	if !ok {
		return
	}
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		if authority := rest[:endOf(rest, "/?#")]; !hostList(authority) {
			if _, password, ok := strings.Cut(rest, ":"); ok {
				k.Know(password, password[:endOf(password, "/?#")])
			}
		}
		return
	}
	user, password, ok := strings.Cut(rest[:at], ":")
	if !ok {
		return
	}
	k.Know(password)
	k.Know(base64.StdEncoding.EncodeToString([]byte(user + ":" + password))) // as in a header Authorization: Basic
	k.learnURL(password)                                                     // a second URL in the same value
}

// LearnText is like the function LearnText, for the secrets of k.
func (k *Keeper) LearnText(text string) {
	for line := range strings.Lines(text) {
		k.LearnValue(strings.TrimRight(line, "\r\n"))
	}
}
