// Package config turns flags, environment, the configuration file and defaults
// into one typed Settings, and remembers where each value came from.
//
// A flag beats an environment variable (QTOP_ and the key in capitals, dots as
// underscores), that beats the chosen profile of the file, that its top level,
// that the default. DATABASE_URL serves where nothing names a dsn; PGHOST and its
// like, pgpass and service files are left to the driver, so an empty dsn is fine.
//
// Nothing is silently defaulted: what cannot be read, is out of range or has an
// unknown name is a Problem, and Load lists all of them at once. A QTOP_ variable of
// an unknown name is a warning. No message holds a password or a secret's source.
package config

// Settings, and Load, the only function that makes them.

import (
	"net/netip"
	"time"

	"github.com/spf13/viper"
)

// Settings is everything that can be configured. Keys lists the same with a
// sentence each.
type Settings struct {
	DSN       string `mapstructure:"dsn"`        // "" leaves it to PGHOST and its like
	ListenDSN string `mapstructure:"listen_dsn"` // "" means the same as DSN
	Pooler    string `mapstructure:"pooler"`     // one of Poolers
	// ExpectServer lists the servers that qtop may connect to, each as cluster_name,
	// address or address:port; empty means any.
	ExpectServer []string `mapstructure:"expect_server"`

	Profile    string        `mapstructure:"profile"` // "" is the file's top level alone
	ReadOnly   bool          `mapstructure:"read_only"`
	Production bool          `mapstructure:"production"`
	Refresh    time.Duration `mapstructure:"refresh"`
	Actor      string        `mapstructure:"actor"`
	ASCII      bool          `mapstructure:"ascii"`
	Theme      string        `mapstructure:"theme"` // one of Themes
	Mouse      bool          `mapstructure:"mouse"`
	Clipboard  bool          `mapstructure:"clipboard"`

	HostID      string        `mapstructure:"host_id"`
	Executor    string        `mapstructure:"executor"` // "" means the same as HostID
	Loops       []string      `mapstructure:"loops"`    // empty means all
	Concurrency int           `mapstructure:"concurrency"`
	Grace       time.Duration `mapstructure:"grace"`
	MetricsAddr string        `mapstructure:"metrics_addr"` // "" serves no metrics
	Handlers    []Handler     `mapstructure:"handlers"`

	Delivery Delivery `mapstructure:"delivery"`

	origins  []Origin
	warnings Problems
	profiles []Profile
}

// Delivery is what the webhook sender needs to know.
type Delivery struct {
	// AllowNetworks may be dialled although they are special-purpose (loopback,
	// private, …).
	AllowNetworks []netip.Prefix `mapstructure:"allow_networks"`
	// AllowPlainHTTP may be sent http without TLS; a special-purpose network must be
	// in AllowNetworks too.
	AllowPlainHTTP []netip.Prefix `mapstructure:"allow_plain_http"`
	PerEndpoint    int            `mapstructure:"per_endpoint"` // in flight per host:port
	Secrets        []Secret       `mapstructure:"secrets"`
}

// Handler binds a job kind to a command (argv, never a shell) or to an HTTP
// endpoint: exactly one of the two is set.
type Handler struct {
	Kind    string
	Command []string
	URL     string
	Timeout time.Duration // of one attempt
}

// Secret says where the signing secret behind a secret_ref is to be read:
// exactly one of Env (a variable's name) and File (an absolute path) is set. The
// same Ref twice means that both sign, which is how a secret is rotated.
type Secret struct {
	Ref  string
	Env  string
	File string
}

// Sources is where settings come from. System fills it for a real process.
type Sources struct {
	// Flags that were set explicitly, by key ("read_only") or by the flag's own
	// name ("read-only"). A flag at its default must not be here.
	Flags map[string]string
	// Environ is in the form of os.Environ.
	Environ []string
	// ConfigHome overrides $XDG_CONFIG_HOME; qtop/config.yaml is below it.
	ConfigHome string
	// Judge says what is wrong with a connection string and what to do, without a
	// word of it; nil judges none.
	Judge func(dsn string) (what, do string)
	// Seen is told every text and value that was read, before anything is said about
	// it, so that what masks passwords knows them; nil is told nothing.
	Seen func(text string)
	// Hostname is the default of host_id, User that of actor.
	Hostname string
	User     string
}

// Load reads all sources. The error, if any, is a Problems with every problem
// found; the settings then hold what could be understood, good for showing and
// for nothing else.
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
		}
	}
	l.layerDatabaseURL(flags)
	l.layer(env, "env")
	l.layer(flags, "flag")
	l.required()

	var s Settings
	if err := l.vars.UnmarshalExact(&s); err != nil {
		// Every value was given its field's type before it got here.
		l.problem("the settings do not fit together: "+oneLine(err.Error()), "config", "report this as a bug")
	}
	s.origins, s.warnings, s.profiles = l.origins(), l.warnings, l.profiles(file)
	return s, l.problems.err()
}

// loader gathers values layer by layer, weakest first, into one viper, and the
// problems on the way.
type loader struct {
	keys     []key
	env      map[string]string
	vars     *viper.Viper
	found    map[string]Origin
	seen     func(string)
	problems Problems
	warnings Problems
}

func (l *loader) problem(what, where, do string) {
	l.problems = append(l.problems, Problem{What: what, Where: where, Do: do})
}

// value is one understood value of a layer.
type value struct {
	v     any
	text  string // as shown, passwords masked
	where string // "" takes the layer's own name
	line  int    // in the file, 0 elsewhere
}

func (l *loader) defaults() {
	for _, k := range l.keys {
		l.vars.SetDefault(k.Name, k.def)
		l.found[k.Name] = Origin{Key: k.Name, Value: k.Default, From: "default"}
	}
}

// layer sets values that stronger layers override later.
func (l *loader) layer(values map[string]value, name string) {
	for key, v := range values {
		where := v.where
		if where == "" {
			where = name
		}
		l.vars.Set(key, v.v)
		l.found[key] = Origin{Key: key, Value: v.text, From: where}
	}
}

// layerDatabaseURL takes the platform's usual variable where nothing of qtop's
// own names a database.
func (l *loader) layerDatabaseURL(flags map[string]value) {
	const name = "DATABASE_URL"
	raw := l.env[name]
	_, byFlag := flags["dsn"]
	// A variable of others is judged only if it would be used.
	if raw == "" || byFlag || l.env["QTOP_DSN"] != "" || l.found["dsn"].From != "default" {
		return
	}
	k, _ := l.key("dsn")
	if v, ok := l.understand(k, raw, "env "+name); ok {
		l.layer(map[string]value{"dsn": v}, "env "+name)
	}
}

// required checks settings whose default comes from the system and can be missing.
func (l *loader) required() {
	if l.vars.GetString("host_id") == "" {
		l.problem("host_id is empty and this machine has no host name", l.found["host_id"].From, "set QTOP_HOST_ID to a unique name for this worker host")
	}
}
