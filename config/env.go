package config

// The two sources whose values are text: flags and environment variables.

import (
	"cmp"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
)

const prefix = "QTOP_"

// System returns the sources of this process: its environment, host name and login.
func System(flags map[string]string) Sources {
	src := Sources{Flags: flags, Environ: os.Environ()}
	// If the host name or the user is not known, the setting stays empty, and Load or the database
	// decides whether that is allowed.
	if name, err := os.Hostname(); err == nil {
		src.Hostname = name
	}
	if u, err := user.Current(); err == nil {
		src.User = u.Username
	}
	// Under sudo, the user is the person who called sudo.
	if name := os.Getenv("SUDO_USER"); name != "" {
		src.User = name
	}
	return src
}

// environ makes a map of the variables. If a name occurs twice, the first one
// counts, as for getenv in C.
func environ(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, entry := range list {
		name, val, ok := strings.Cut(entry, "=")
		if _, twice := env[name]; ok && name != "" && !twice {
			env[name] = val
		}
	}
	return env
}

// ASCIIByEnvironment reports whether the environment alone asks for ASCII: by QTOP_ASCII, or, if
// that is not set, by the locale.
func ASCIIByEnvironment(list []string) bool {
	env := environ(list)
	if v, problem := boolean(env[prefix+"ASCII"]); problem == nil {
		on, _ := v.(bool)
		return on
	}
	return asciiLocale(env)
}

// asciiLocale reports whether the character set of the locale is not UTF-8. As in POSIX, the first
// of LC_ALL, LC_CTYPE and LANG that is not empty counts. The result is false for a name without a
// character set, such as en_US, and if no locale is set.
func asciiLocale(env map[string]string) bool {
	name := cmp.Or(env["LC_ALL"], env["LC_CTYPE"], env["LANG"])
	name, _, _ = strings.Cut(name, "@")
	if name == "C" || name == "POSIX" {
		return true
	}
	_, set, named := strings.Cut(name, ".")
	set = strings.ToLower(strings.ReplaceAll(set, "-", ""))
	return named && set != "utf8"
}

// envValues parses the QTOP_ variables. An unknown one is a warning, because a newer or older qtop,
// or a script, may use it. An empty one counts as not set, because shells and unit files unset
// variables in this way.
func (l *loader) envValues() map[string]value {
	byEnv := map[string]key{}
	for _, k := range l.keys {
		byEnv[k.Env] = k
	}
	known := slices.Sorted(maps.Keys(byEnv))
	values := map[string]value{}
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		if !strings.HasPrefix(name, prefix) || foreignEnv(name) || l.env[name] == "" {
			continue
		}
		where := "env " + name
		k, ok := byEnv[name]
		if !ok {
			// The value is not shown: it may be a password under a wrong name.
			l.warnings = append(l.warnings, Problem{What: "the environment has the unknown variable " + quote(name), Where: "env",
				Do: orElse(meant(name, "", known), "unset it")})
			continue
		}
		if v, ok := l.understand(k, l.env[name], where); ok {
			v.where = where
			values[k.Name] = v
		}
	}
	return values
}

// flagValues parses the flags that were given. A flag with a password is refused, because every
// user of the machine can see the arguments of every process. What only may be one is a warning.
// An empty flag is refused unless it clears the value of other sources.
func (l *loader) flagValues(flags map[string]string) map[string]value {
	values := map[string]value{}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		at := slices.IndexFunc(l.keys, func(k key) bool { return name == k.Name || name == k.Flag })
		if at < 0 {
			l.problem("no setting belongs to the flag "+quote(name), "flag",
				strings.ReplaceAll(meant(name, "--", l.names()), "_", "-"))
			continue
		}
		k := l.keys[at]
		where := "flag --" + k.Flag
		raw := flags[name]
		const seen = "anyone on this machine can read it in the process list"
		do := "write the setting into the configuration file, readable for its owner alone, or into " + k.Env
		found := harmless
		switch {
		case k.Part == "connection" || k.Part == "listen":
			do = "put it in ~/.pgpass, PGPASSWORD or " + k.Env + " and give the rest"
			if hasPassword(raw) {
				found = certainty
			}
		case k.Name != "delivery.secrets": // that one names sources, never a password
			found = suspectAny(raw)
		}
		switch found {
		case harmless:
		case certainty:
			l.problem("a password in --"+k.Flag+" is refused: "+seen, where, do)
			continue
		case doubt:
			l.warnings = append(l.warnings, Problem{What: "--" + k.Flag + " may hold a password: " + seen, Where: where, Do: do})
		}
		v, ok := l.understand(k, raw, where)
		switch {
		case !ok:
		case strings.TrimSpace(raw) == "" && !k.Clears: // such as "$PROD_DSN" of a script that did not set it: another source would count
			l.problem(k.Name+" is empty", where, "give it a value or leave it out")
		default:
			v.where = where
			values[k.Name] = v
		}
	}
	return values
}
