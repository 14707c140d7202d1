package config

// The list of keys, each with name, default, allowed values and help. Flags, documents and checks
// are generated from it.

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// KeyInfo describes one key, for flags and documents.
type KeyInfo struct {
	Name    string // "delivery.per_endpoint"
	Flag    string // "delivery-per-endpoint"
	Env     string // "QTOP_DELIVERY_PER_ENDPOINT"
	Type    string // "bool", "duration", "number", "text", "list"
	Default string // as a user would write it; "": no default
	Help    string // one sentence without a full stop
	Part    string // what the key is for: one of Parts
	Clears  bool   // an empty flag takes away the value of other sources; of other keys, it is refused
}

// Parts returns what keys are for, in the order of Keys: reaching the database (connection),
// listening on it (listen), the person and their rights (caller), repeated printing (watch),
// printed text (text), the screen, the worker host, sending requests (delivery).
func Parts() (parts []string) {
	for _, k := range keyInfos() {
		if !slices.Contains(parts, k.Part) {
			parts = append(parts, k.Part)
		}
	}
	return parts
}

// part sets what these keys are for.
func part(name string, keys ...key) []key {
	for i := range keys {
		keys[i].Part = name
	}
	return keys
}

// Keys lists every key, in the order of the documents.
func Keys() []KeyInfo { return slices.Clone(keyInfos()) }

var keyInfos = sync.OnceValue(func() []KeyInfo {
	all := keys(Sources{})
	infos := make([]KeyInfo, len(all))
	for i, k := range all {
		infos[i] = k.KeyInfo
		switch k.Name {
		case "host_id":
			infos[i].Default = "the host name"
		case "actor":
			infos[i].Default = "the login name"
		}
	}
	return infos
})

// Themes returns the values of theme; with auto, the console asks the terminal for its background
// colour.
func Themes() []string { return []string{"auto", "dark", "light", "mono"} }

// Poolers returns the values of pooler.
func Poolers() []string { return []string{"auto", "transaction"} }

// key is a KeyInfo with the default, the parser and the formatter that Load needs.
type key struct {
	KeyInfo
	def   any
	parse parser
	show  func(any) string
}

// clearable is a key whose flag may be empty.
func clearable(k key) key {
	k.Clears = true
	return k
}

// keys makes a new list for each Load: two defaults depend on the machine, and a caller cannot
// change a list that other callers use.
func keys(src Sources) []key {
	none := []string(nil)
	all := slices.Concat(
		part("connection",
			connection("dsn", src.Judge, "database, as a URL or key=value pairs; a password belongs in pgpass, PGPASSWORD or QTOP_DSN"),
		),
		part("listen",
			clearable(connection("listen_dsn", src.Judge, "direct connection to the server for LISTEN and migrations, if dsn points to a pooler: without it, behind one in transaction mode, hosts and consoles poll; not used if a stronger source sets another dsn; default: dsn")),
		),
		part("connection",
			text("pooler", "auto", oneOf(Poolers()), "pooler between qtop and the database: auto detects it, transaction says that it is one in transaction mode"),
			list("expect_server", none, names, "servers that this profile is for, by cluster_name, address or address:port, comma separated; on any other server, such as a physical copy, hosts claim nothing and the console shows a warning"),
		),
		part("caller",
			text("profile", "", plainText, "profile of the configuration file"),
			flag("read_only", false, "show everything, change nothing"),
			flag("production", false, "this is production, whatever the database says: each action asks you to type a name"),
		),
		part("watch",
			duration("refresh", time.Second, 250*time.Millisecond, time.Hour, "interval between two snapshots of the database"),
		),
		part("caller",
			text("actor", src.User, personName, "your name in the audit"),
		),
		part("text",
			flag("ascii", asciiLocale(environ(src.Environ)), "draw and print in ASCII only; default: true if LC_ALL, LC_CTYPE or LANG names a locale that is not UTF-8"),
		),
		part("screen",
			text("theme", "auto", oneOf(Themes()), "colours: "+strings.Join(Themes(), ", ")),
			flag("mouse", false, "start with the mouse on"),
			flag("clipboard", true, "let y copy to the terminal's clipboard (OSC 52)"),
		),
		part("host",
			text("host_id", src.Hostname, plainText, "name of this worker host; two running hosts cannot have the same"),
			text("executor", "", plainText, "executor under which this host claims jobs; it must be registered and have a job subscription; default: host_id"),
			list("loops", none, names, "loops to run, comma separated; default: all"),
			number("concurrency", 64, 1, 10_000, "maximum number of jobs and deliveries in flight on this host"),
			duration("grace", 20*time.Second, 0, time.Hour, "how long a stop or reload waits for jobs and deliveries in flight; a quarter of it, at most 5s, before the end it stops those that still run"),
			clearable(text("metrics_addr", "", address, "address for Prometheus metrics, /healthz and /readyz, such as 127.0.0.1:9187")),
			list("handlers", []Handler(nil), handlers, "job kinds and the command or URL that runs each: a list of {kind, command | url, timeout (default 1h)}; JSON in a flag or variable"),
		),
		part("delivery",
			clearable(list("delivery.allow_networks", noPrefixes(), prefixes, "private and other special-purpose networks (CIDR) that webhooks and URL handlers may reach, comma separated")),
			clearable(list("delivery.allow_plain_http", noPrefixes(), prefixes, "networks (CIDR) that may be reached by http without TLS, comma separated; a special-purpose network must be in delivery.allow_networks too")),
		),
		part("host",
			number("delivery.per_endpoint", 8, 1, 10_000, "maximum number of deliveries in flight from this host to one endpoint (host:port)"),
		),
		part("delivery",
			list("delivery.secrets", []Secret(nil), secrets, "signing secrets, a list of {ref, from: env:NAME | file:PATH}; REF=env:NAME,… in a flag or variable"),
		),
	)
	for i := range all {
		k := &all[i]
		k.Flag = strings.NewReplacer("_", "-", ".", "-").Replace(k.Name)
		k.Env = "QTOP_" + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
		k.Default = k.show(k.def)
	}
	return all
}

func (l *loader) key(name string) (key, bool) {
	for _, k := range l.keys {
		if k.Name == name {
			return k, true
		}
	}
	return key{}, false
}

func (l *loader) names() []string {
	all := make([]string, len(l.keys))
	for i, k := range l.keys {
		all[i] = k.Name
	}
	return all
}

// understand parses one raw value: text from a flag or variable, or a YAML value from the file.
func (l *loader) understand(k key, raw any, where string) (value, bool) {
	if s, ok := raw.(string); ok {
		l.seen(s)
	}
	v, bad := k.parse(raw)
	if bad != nil {
		l.problem(k.Name+" "+bad.what, where, bad.do)
		return value{}, false
	}
	return value{v: v, text: k.show(v)}, true
}

// foreignEnv reports whether a QTOP_ variable belongs to another part of qtop and is no setting:
// the variables that say where PostgreSQL's programs are, those that a host gives to the command of a
// job, which may call qtop, and those of the tests.
func foreignEnv(name string) bool {
	switch name {
	case "QTOP_PG_BIN", "QTOP_PG_MIRROR", "QTOP_OFFLINE",
		"QTOP_JOB_ID", "QTOP_ROOT_JOB_ID", "QTOP_JOB_KIND", "QTOP_JOB_DOMAIN", "QTOP_JOB_ATTEMPT", "QTOP_RUN":
		return true
	}
	return strings.HasPrefix(name, "QTOP_TEST_")
}
