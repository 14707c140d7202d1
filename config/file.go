package config

// The configuration file: its place, its mode, its profiles.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/qtop/qtop/pgclient/fileguard"
)

// mostBytes is the largest configuration file that is read. It is far more than a configuration
// needs: a device or a log file at this path must not fill the memory.
const mostBytes = 1 << 20

// configFile is the valid content of the configuration file.
type configFile struct {
	broken   bool // the file cannot be parsed, so a missing key is not reported
	top      map[string]value
	profiles map[string]map[string]value
	lines    map[string]int // the lines of the profiles' names
}

// File returns the path of the configuration file, whether it exists or not; "" if no folder for it
// is known.
func File(src Sources) string { return configPath(src.ConfigHome, environ(src.Environ)) }

// configPath returns $XDG_CONFIG_HOME/qtop/config.yaml, or "" if no folder is known. As the XDG
// rules require, a relative folder is ignored.
func configPath(home string, env map[string]string) string {
	if home == "" {
		home = env["XDG_CONFIG_HOME"]
	}
	if !filepath.IsAbs(home) {
		home = ""
	}
	if home == "" && filepath.IsAbs(env["HOME"]) {
		home = filepath.Join(env["HOME"], ".config")
	}
	if home == "" {
		return ""
	}
	return filepath.Join(home, "qtop", "config.yaml")
}

// readFile parses the whole file, including the profiles that are not chosen, so that a mistake in
// one of those is found before the profile is needed.
func (l *loader) readFile(path string) configFile {
	if path == "" {
		return configFile{}
	}
	where := "file " + path
	text, info, err := slurp(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return configFile{}
	case errors.Is(err, fs.ErrPermission):
		l.problem("the configuration file cannot be read", where, "give this user the right to read it, or move it away")
		return configFile{broken: true}
	case errors.Is(err, fileguard.ErrNoAnswer):
		l.problem("the configuration file cannot be read: "+err.Error(), where, repairIt)
		return configFile{broken: true}
	case err != nil:
		l.problem("the configuration file cannot be read: "+oneLine(err.Error()), where, "correct it or move it away")
		return configFile{broken: true}
	}
	mode := info.Mode()
	l.seen(string(text))
	settings, lines, bad := decodeYAML(text)
	if bad != nil {
		l.problem(bad.what, where+bad.at(), "correct it")
		return configFile{broken: true}
	}
	file := configFile{profiles: map[string]map[string]value{}, lines: map[string]int{}}

	raw, has := settings["profiles"]
	delete(settings, "profiles")
	file.top = l.fileValues(settings, where, "", lines)
	profiles, ok := raw.(map[string]any)
	if has && raw != nil && !ok {
		l.problem("profiles is "+kindOf(raw), where+lines.at("profiles"), "write profiles: {NAME: {dsn: …}}")
	}
	below := lines.below("profiles")
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		values, ok := profiles[name].(map[string]any)
		if !ok && profiles[name] != nil {
			l.problem("profile "+quote(name)+" is "+kindOf(profiles[name]), where+below.at(name), "give it keys, such as dsn")
			file.broken = true
			continue
		}
		file.lines[name] = below.line(name)
		file.profiles[name] = l.fileValues(values, where, name, below.below(name))
	}

	if most := mostMode(info, os.Geteuid()); mode.Perm()&^most&0o077 != 0 {
		const what = "the configuration file %s a password and others may read it (mode %04o)"
		do := fmt.Sprintf("run chmod %o %s", most, path)
		switch suspectAny(settings, profiles) {
		case harmless:
		case certainty:
			l.problem(fmt.Sprintf(what, "holds", mode.Perm()), where, do)
		case doubt:
			l.warnings = append(l.warnings, Problem{What: fmt.Sprintf(what, "may hold", mode.Perm()), Where: where, Do: do})
		}
	}
	return file
}

// mostMode returns the most open mode that a file with a password may have. A group may read a file of
// root, as it may read a secret of a host (package fileguard): the service's user could not read it otherwise.
func mostMode(info fs.FileInfo, me int) fs.FileMode {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid == 0 && me != 0 {
		return 0o640
	}
	return 0o600
}

// repairIt is what to do about a configuration file whose file system does not answer.
const repairIt = "repair that file system, or set XDG_CONFIG_HOME to another folder"

// slurp returns the content of a configuration file and what the system says of it.
func slurp(path string) ([]byte, fs.FileInfo, error) {
	text, info, err := fileguard.Read(path, mostBytes+1)
	if err == nil && len(text) > mostBytes {
		err = errors.New("larger than 1 MB")
	}
	return text, info, err
}

// fileValues parses one level of keys: the top level or a profile.
func (l *loader) fileValues(settings map[string]any, file, profile string, lines place) map[string]value {
	at := func(name string) string {
		where := file + lines.at(name)
		if profile != "" {
			where += ", profile " + quote(profile)
		}
		return where
	}
	flat := map[string]any{}
	l.flatten(settings, "", at, flat)
	values := map[string]value{}
	for _, name := range slices.Sorted(maps.Keys(flat)) {
		where := at(name)
		k, ok := l.key(name)
		switch {
		case !ok:
			do := orElse(meant(name, "", append(l.names(), "profiles")), "take it out")
			l.problem("unknown key "+quote(name), where, do)
		case name == "profile" && profile != "":
			l.problem("a profile cannot choose a profile", where, "move the line to the top of the file")
		default:
			if v, ok := l.understand(k, flat[name], where); ok {
				v.line = lines.line(name)
				values[name] = v
			}
		}
	}
	return values
}

// flatten turns nested groups of keys into keys with dots
// (delivery.per_endpoint). It stops at keys that are known, whose value may
// itself be a map, and at unknown names, which are reported.
func (l *loader) flatten(settings map[string]any, above string, at func(string) string, out map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		full := above + name
		isGroup := slices.ContainsFunc(l.keys, func(k key) bool { return strings.HasPrefix(k.Name, full+".") })
		if !isGroup {
			if _, twice := out[full]; twice {
				l.problem(quote(full)+" is set twice, once nested and once with a dot", at(full), "keep one of them")
			}
			out[full] = settings[name]
			continue
		}
		switch group := settings[name].(type) {
		case nil: // a group whose lines are all commented out, such as 'delivery:'
		case map[string]any:
			l.flatten(group, full+".", at, out)
		default:
			l.problem(quote(full)+" is "+kindOf(group), at(full), "write a group of keys below it")
		}
	}
}

// suspectAny returns the strongest suspicion of all texts in values, at any depth. In a text that is a
// JSON list, as handlers are in a flag, the texts of the list count.
func suspectAny(values ...any) (most suspicion) {
	for _, v := range values {
		var inner []any
		switch v := v.(type) {
		case string:
			if json.Unmarshal([]byte(v), &inner) != nil {
				most = max(most, suspect(v))
			}
		case []any:
			inner = v
		case map[string]any:
			inner = slices.Collect(maps.Values(v))
		}
		most = max(most, suspectAny(inner...))
	}
	return most
}

// chooseProfile returns the profile that the strongest source names, and that source.
func (l *loader) chooseProfile(flags, env map[string]value, file configFile, path string) (name, from string) {
	for _, layer := range []map[string]value{flags, env, file.top} {
		v, ok := layer["profile"]
		if !ok {
			continue
		}
		if from = v.where; from == "" {
			from = "file " + path + atLine(v.line)
		}
		name, _ = v.v.(string)
		return name, from
	}
	return "", ""
}

// profileValues returns the values of a profile.
func (l *loader) profileValues(name, from string, file configFile) (map[string]value, bool) {
	if values, ok := file.profiles[name]; ok {
		return values, true
	}
	if file.broken {
		return nil, false
	}
	l.problem("there is no profile "+quote(name), from, insteadOf(name, file.profiles))
	return nil, false
}

// insteadOf returns the advice for a profile that does not exist: the nearest
// name, or all names.
func insteadOf[V any](name string, profiles map[string]V) string {
	if len(profiles) == 0 {
		return "write it under profiles: in $XDG_CONFIG_HOME/qtop/config.yaml (~/.config without it), or with qtop profile add"
	}
	return meant(name, "", slices.Sorted(maps.Keys(profiles)))
}
