// Package config makes one typed Settings of flags, environment variables, the configuration file
// and defaults, and remembers where each value came from.
//
// A flag overrides an environment variable (QTOP_ and the key in capitals, with underscores for
// dots). A variable overrides the chosen profile of the file, which overrides the top level of the
// file, which overrides the default. A source that sets another dsn also takes away the listen_dsn
// of weaker sources, which may lead to another database. DATABASE_URL is used if no source sets dsn.
// PGHOST and the other PG* variables, pgpass and service files are read by the driver, so an empty
// dsn is valid.
//
// No mistake is silently replaced by a default: a value that cannot be read or is out of range, or
// an unknown name, is a Problem, and Load returns all of them at once. A QTOP_ variable with an
// unknown name is only a warning. No message contains a password or the source of a secret.
package config

// The type Settings, and Load, the only function that makes one.

import (
	"net/netip"
	"time"

	"github.com/spf13/viper"
)

// Settings is everything that can be configured. Keys lists the same settings with a sentence about
// each.
type Settings struct {
	DSN       string `mapstructure:"dsn"`        // "" = the driver uses the PG* variables
	ListenDSN string `mapstructure:"listen_dsn"` // "" = DSN
	Pooler    string `mapstructure:"pooler"`     // one of Poolers
	// ExpectServer lists the servers that qtop may connect to, each as cluster_name,
	// address or address:port; empty means any.
	ExpectServer []string `mapstructure:"expect_server"`

	Profile    string        `mapstructure:"profile"` // "" = only the top level of the file
	ReadOnly   bool          `mapstructure:"read_only"`
	Production bool          `mapstructure:"production"`
	Refresh    time.Duration `mapstructure:"refresh"`
	Actor      string        `mapstructure:"actor"`
	ASCII      bool          `mapstructure:"ascii"`
	Theme      string        `mapstructure:"theme"` // one of Themes
	Mouse      bool          `mapstructure:"mouse"`
	Clipboard  bool          `mapstructure:"clipboard"`

	HostID      string        `mapstructure:"host_id"`
	Executor    string        `mapstructure:"executor"` // "" = HostID
	Loops       []string      `mapstructure:"loops"`    // empty = all loops
	Concurrency int           `mapstructure:"concurrency"`
	Grace       time.Duration `mapstructure:"grace"`
	MetricsAddr string        `mapstructure:"metrics_addr"` // "" = metrics are not served
	Handlers    []Handler     `mapstructure:"handlers"`

	Delivery Delivery `mapstructure:"delivery"`

	origins  []Origin
	warnings Problems
	profiles []Profile
}

// Delivery has the settings of the webhook sender.
type Delivery struct {
	// AllowNetworks are special-purpose networks (loopback, private, …) to which webhooks may be
	// sent nevertheless.
	AllowNetworks []netip.Prefix `mapstructure:"allow_networks"`
	// AllowPlainHTTP are networks to which webhooks may be sent by http without TLS; a
	// special-purpose network must be in AllowNetworks too.
	AllowPlainHTTP []netip.Prefix `mapstructure:"allow_plain_http"`
	PerEndpoint    int            `mapstructure:"per_endpoint"` // requests in flight per host:port
	Secrets        []Secret       `mapstructure:"secrets"`
}

// Handler binds a job kind to a command (argv, never a shell) or to an HTTP
// endpoint: exactly one of the two is set.
type Handler struct {
	Kind    string
	Command []string
	URL     string
	Timeout time.Duration // time limit of one attempt
}

// Secret says where the signing secret for a secret_ref is read: exactly one of Env (the name of a
// variable) and File (an absolute path) is set. If two entries have the same Ref, requests are
// signed with both secrets; this is how a secret is rotated.
type Secret struct {
	Ref  string
	Env  string
	File string
}

// Sources holds everything from which Load makes settings. System returns the sources of a real
// process.
type Sources struct {
	// Flags are the flags that were set explicitly, by key ("read_only") or by the name of the flag
	// ("read-only"). A flag at its default must not be here.
	Flags map[string]string
	// Environ is in the form that os.Environ returns.
	Environ []string
	// ConfigHome is used instead of $XDG_CONFIG_HOME; the file is qtop/config.yaml below it.
	ConfigHome string
	// Judge checks a connection string. It returns what is wrong with it (""
	// if nothing) and what to do, and must not repeat any part of it, which
	// may be a password. nil: connection strings are not checked.
	Judge func(dsn string) (what, do string)
	// Seen is called with every text and value that was read, before any message is made, so that
	// the caller can mask the passwords in them; nil = not called.
	Seen func(text string)
	// Hostname is the default of host_id; User is the default of actor.
	Hostname string
	User     string
}

// Load reads all sources. The error, if any, is a Problems with every problem found; the settings
// then hold the valid values only, and may be used for display but for nothing else.
func Load(src Sources) (Settings, error) {
	l := loader{
		keys:  keys(src),
		env:   environ(src.Environ),
		vars:  viper.New(),
		found: map[string]Origin{},
	}
	if src.Seen == nil {
		src.Seen = func(string) {}
	}
	l.seen = src.Seen
	l.defaults()
	flags := l.flagValues(src.Flags)
	env := l.envValues()
	path := configPath(src.ConfigHome, l.env)
	file := l.readFile(path)

	l.layer(file.top, "file "+path)
	profile, from := l.chooseProfile(flags, env, file, path)
	if profile != "" {
		if values, ok := l.profileValues(profile, from, file); ok {
			l.layer(values, "file "+path+", profile "+quote(profile))
			for key := range values {
				o := l.found[key]
				o.profile = true
				l.found[key] = o
			}
		}
	}
	l.layerDatabaseURL(flags)
	l.layer(env, "env")
	l.layer(flags, "flag")
	l.required()
	l.warnAboutListenDSN()

	var s Settings
	if err := l.vars.UnmarshalExact(&s); err != nil {
		// The parsers have already given each value the type of its field, so
		// this cannot fail.
		l.problem("the settings do not fit together: "+oneLine(err.Error()), "config", "report this as a bug")
	}
	s.origins, s.warnings, s.profiles = l.origins(), l.warnings, l.profiles(file)
	return s, l.problems.err()
}

// loader sets values layer by layer, weakest first, in one viper, and collects the problems.
type loader struct {
	keys     []key
	env      map[string]string
	vars     *viper.Viper
	found    map[string]Origin
	seen     func(string)
	unused   string // the source of a listen_dsn that a stronger dsn took away
	problems Problems
	warnings Problems
}

func (l *loader) problem(what, where, do string) {
	l.problems = append(l.problems, Problem{What: what, Where: where, Do: do})
}

// value is one valid value of a layer.
type value struct {
	v     any
	text  string // as text, with passwords masked
	where string // the source of the value; "" = the name of the layer
	line  int    // line in the file; 0 in other sources
}

func (l *loader) defaults() {
	for _, k := range l.keys {
		l.vars.SetDefault(k.Name, k.def)
		l.found[k.Name] = k.origin()
	}
}

// origin is the Origin of the default.
func (k key) origin() Origin { return Origin{Key: k.Name, Value: k.Default, From: "default"} }

// layer sets the values of one source. Sources that are set later override them.
func (l *loader) layer(values map[string]value, name string) {
	l.leaveListenDSN(values)
	for key, v := range values {
		where := v.where
		if where == "" {
			where = name
		}
		l.vars.Set(key, v.v)
		l.found[key] = Origin{Key: key, Value: v.text, From: where}
	}
}

// leaveListenDSN takes away the listen_dsn of weaker sources if values has another dsn: migrations
// and LISTEN would go to the database of the weaker source.
func (l *loader) leaveListenDSN(values map[string]value) {
	const name = "listen_dsn"
	dsn, sets := values["dsn"]
	if !sets || dsn.v == l.vars.Get("dsn") || l.found[name].From == "default" {
		return
	}
	k, _ := l.key(name)
	l.unused = l.found[name].From
	l.vars.Set(name, k.def)
	l.found[name] = k.origin()
}

// warnAboutListenDSN warns of a listen_dsn that was taken away and not replaced.
func (l *loader) warnAboutListenDSN() {
	if l.unused != "" && l.found["listen_dsn"].From == "default" {
		l.warnings = append(l.warnings, Problem{What: "listen_dsn is not used: dsn comes from " + l.found["dsn"].From, Where: l.unused,
			Do: "if both lead to one database, set both in one source"})
	}
}

// layerDatabaseURL uses DATABASE_URL, the usual variable of hosting platforms, if no setting of
// qtop names a database.
func (l *loader) layerDatabaseURL(flags map[string]value) {
	const name = "DATABASE_URL"
	raw := l.env[name]
	_, byFlag := flags["dsn"]
	// Other programs use DATABASE_URL too, so a mistake in it is reported only
	// if qtop would use it.
	if raw == "" || byFlag || l.env["QTOP_DSN"] != "" || l.found["dsn"].From != "default" {
		return
	}
	k, _ := l.key("dsn")
	if v, ok := l.understand(k, raw, "env "+name); ok {
		l.layer(map[string]value{"dsn": v}, "env "+name)
	}
}

// required reports settings that the system should have provided (host name, user) and did not.
func (l *loader) required() {
	switch from := l.found["host_id"].From; {
	case l.vars.GetString("host_id") != "":
	case from == "default":
		l.problem("host_id is empty and this machine has no host name", from, "set QTOP_HOST_ID to a unique name for this worker host")
	default:
		l.problem("host_id is empty", from, "give it a value or take the line out")
	}
}
