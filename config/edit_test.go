package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/config"
)

var pathless = regexp.MustCompile(`file [^ ]*/config\.yaml`)

// edited returns the text of the file after a change, and the error of the change.
func edited(t *testing.T, text string, change func(src config.Sources) (string, error), flags map[string]string) (string, error) {
	t.Helper()
	dir := home(t, text)
	path, err := change(withMachine(config.Sources{ConfigHome: dir, Flags: flags}))
	require.Equal(t, filepath.Join(dir, "qtop", "config.yaml"), path)
	got, readErr := os.ReadFile(path)
	require.NoError(t, readErr)
	if err != nil {
		require.Equal(t, text, string(got), "a change that fails leaves the file alone")
		_, ok := config.AsProblems(err)
		require.True(t, ok)
	}
	return string(got), err
}

func adds(name string) func(config.Sources) (string, error) {
	return func(src config.Sources) (string, error) { return config.AddProfile(src, name) }
}

func uses(name string) func(config.Sources) (string, error) {
	return func(src config.Sources) (string, error) { return config.UseProfile(src, name) }
}

func TestAddProfileKeepsEveryOtherLine(t *testing.T) {
	dsn := map[string]string{"dsn": "service=new"}
	for name, x := range map[string]struct{ before, after string }{
		"no profiles":  {"# mine\nrefresh: 2s # slow\n", "# mine\nrefresh: 2s # slow\nprofiles:\n  new:\n    dsn: service=new\n"},
		"empty file":   {"", "profiles:\n  new:\n    dsn: service=new\n"},
		"no newline":   {"refresh: 2s", "refresh: 2s\nprofiles:\n  new:\n    dsn: service=new\n"},
		"CRLF":         {"refresh: 2s\r\n", "refresh: 2s\r\nprofiles:\r\n  new:\r\n    dsn: service=new\r\n"},
		"CRLF no end":  {"refresh: 2s\r\ntheme: dark", "refresh: 2s\r\ntheme: dark\r\nprofiles:\r\n  new:\r\n    dsn: service=new\r\n"},
		"CRLF and LF":  {"profiles:\r\n  a:\r\n    dsn: service=a\n# the theme\ntheme: dark\n", "profiles:\r\n  a:\r\n    dsn: service=a\n  new:\r\n    dsn: service=new\r\n# the theme\ntheme: dark\n"},
		"a mark":       {"\ufeffprofiles:\n", "\ufeffprofiles:\n  new:\n    dsn: service=new\n"},
		"null":         {"profiles:\n#  main:\n#    dsn: x\n", "profiles:\n  new:\n    dsn: service=new\n#  main:\n#    dsn: x\n"},
		"last":         {"profiles:\n    a: {dsn: service=a}\n    # of a\n\n# end\n", "profiles:\n    a: {dsn: service=a}\n    # of a\n\n# end\n    new:\n      dsn: service=new\n"},
		"between keys": {"profiles:\n  a:\n    dsn: service=a\n    # of a\n\n# the theme\ntheme: dark\n", "profiles:\n  a:\n    dsn: service=a\n    # of a\n  new:\n    dsn: service=new\n\n# the theme\ntheme: dark\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := edited(t, x.before, adds("new"), dsn)
			require.NoError(t, err)
			require.Equal(t, x.after, got)
		})
	}
}

// The profile has the settings that the flags gave.
func TestAddedProfileIsRead(t *testing.T) {
	flags := map[string]string{
		"dsn": "postgres://anna@db/app", "production": "true", "concurrency": "7", "grace": "5s", "expect-server": "a,b: c", "actor": "no",
		"delivery-per-endpoint": "3", "delivery-allow-networks": "10.0.0.0/8", "handlers": `[{"kind":"k","command":["/bin/k","# 'x'"]}]`,
	}
	dir := t.TempDir() // there is no folder qtop in it yet
	src := withMachine(config.Sources{ConfigHome: dir, Flags: flags})
	path, err := config.AddProfile(src, "2026: x")
	require.NoError(t, err)
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), name)
	}
	_, err = config.UseProfile(withMachine(config.Sources{ConfigHome: dir}), "2026: x")
	require.NoError(t, err)
	got := load(t, config.Sources{ConfigHome: dir})
	want := load(t, src)
	require.Equal(t, "2026: x", got.Profile)
	for _, o := range want.Origins() {
		if o.Key != "profile" {
			require.Equal(t, o.Value, origin(t, got, o.Key).Value, o.Key)
		}
	}
	require.Equal(t, want.Handlers, got.Handlers)
	require.Equal(t, want.Delivery, got.Delivery)

	profiles := got.Profiles()
	require.Len(t, profiles, 1)
	require.Equal(t, "2026: x", profiles[0].Name)
	require.Len(t, profiles[0].Settings, len(flags))
	left, err := filepath.Glob(filepath.Join(dir, "qtop", ".*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAddProfileRefuses(t *testing.T) {
	dsn := map[string]string{"dsn": "service=new"}
	for name, x := range map[string]struct {
		text, profile string
		flags         map[string]string
		want          string
	}{
		"one that exists":  {"theme: dark\nprofiles:\n  new: {dsn: service=a}\n", "new", dsn, `the profile "new" exists (file PATH:3): choose`},
		"a password":       {"", "new", map[string]string{"dsn": "postgres://a:hunter2@h/db"}, "a password in --dsn is refused"},
		"one in a handler": {"", "new", map[string]string{"handlers": `[{"kind":"k","url":"https://u:hunter2@h/jobs"}]`}, "a password in --handlers is refused"},
		"one in a command": {"", "new", map[string]string{"handlers": `[{"kind":"k","command":["x","postgres://u:hunter2@h/d"]}]`}, "write the setting into the configuration file"},
		"a bad value":      {"", "new", map[string]string{"theme": "pink"}, `theme cannot be "pink" (flag --theme)`},
		"no setting":       {"", "new", nil, "without settings"},
		"a profile in it":  {"", "new", map[string]string{"profile": "x"}, "cannot choose a profile"},
		"no name":          {"", "", dsn, "cannot be called"},
		"a hidden name":    {"", "a\x1b[2J", dsn, "cannot be called"},
		"a file not YAML":  {"theme: dark\na: [\n", "new", dsn, "is not valid YAML"},
		"a flow style":     {"profiles: {a: {dsn: service=a}}\n", "new", dsn, "cannot be changed line by line (file PATH): change it with an editor"},
		"an end of a file": {"profiles:\n  a:\n    dsn: service=a\n...\n", "new", dsn, "cannot be changed line by line"},
		"a list":           {"profiles: [a]\n", "new", dsn, "cannot be changed line by line"},
		"a root in braces": {"{theme: dark}\n", "new", dsn, "cannot be changed line by line"},
		"lines of CR":      {"theme: dark\r# the theme\rprofiles:\r  a: {dsn: service=a}\r", "new", dsn, "cannot be changed line by line"},
		"lines of Unicode": {"# one\u2028# two\u0085# three\u2029\nprofiles:\n  a: {dsn: service=a}\n", "new", dsn, "cannot be changed line by line"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := edited(t, x.text, adds(x.profile), x.flags)
			require.Error(t, err)
			said := pathless.ReplaceAllString(err.Error(), "file PATH")
			require.Contains(t, said, x.want)
			require.NotContains(t, said, "hunter2")
		})
	}
}

func TestUseProfileKeepsEveryOtherLine(t *testing.T) {
	const rest = "\n# the databases\nprofiles:\n  a: {dsn: service=a}\n  b: {dsn: service=b}\n"
	for name, x := range map[string]struct{ before, after string }{
		"none":         {"theme: dark\n" + rest, "theme: dark\n\nprofile: b\n# the databases\nprofiles:\n  a: {dsn: service=a}\n  b: {dsn: service=b}\n"},
		"another":      {"profile: a" + rest, "profile: b" + rest},
		"with comment": {"theme: dark\nprofile:  'a'   # at home: a\n" + rest, "theme: dark\nprofile: b   # at home: a\n" + rest},
		"no value":     {"profile:\n" + rest, "profile: b\n" + rest},
		"itself":       {"profile: b\n" + rest, "profile: b\n" + rest},
		"CRLF":         {strings.ReplaceAll("profile: a"+rest, "\n", "\r\n"), strings.ReplaceAll("profile: b"+rest, "\n", "\r\n")},
		"CRLF comment": {strings.ReplaceAll("profile: a # x"+rest, "\n", "\r\n"), strings.ReplaceAll("profile: b # x"+rest, "\n", "\r\n")},
		"CRLF and LF":  {strings.ReplaceAll(rest, "\n", "\r\n") + "profile: a\n", strings.ReplaceAll(rest, "\n", "\r\n") + "profile: b\n"},
		"a mark":       {"\ufeffprofiles: {b: }\n", "\ufeffprofile: b\nprofiles: {b: }\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := edited(t, x.before, uses("b"), nil)
			require.NoError(t, err)
			require.Equal(t, x.after, got)
		})
	}
	_, err := edited(t, "profile: a"+rest, uses("c"), nil)
	require.ErrorContains(t, err, `config.yaml:3): did you mean a?`)
	_, err = edited(t, "", uses("c"), nil)
	require.ErrorContains(t, err, "qtop profile add")
	_, err = edited(t, "profile: >-\n  a"+rest, uses("b"), nil)
	require.ErrorContains(t, err, "cannot be changed line by line")
}

// A change keeps the mode of the file, and a symbolic link to it.
func TestAChangeKeepsModeAndLink(t *testing.T) {
	dir, elsewhere := home(t, "profiles:\n"), filepath.Join(t.TempDir(), "mine.yaml")
	path := filepath.Join(dir, "qtop", "config.yaml")
	require.NoError(t, os.Rename(path, elsewhere))
	require.NoError(t, os.Chmod(elsewhere, 0o640))
	require.NoError(t, os.Symlink(elsewhere, path))
	_, err := config.AddProfile(withMachine(config.Sources{ConfigHome: dir, Flags: map[string]string{"dsn": "service=a"}}), "a")
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	info, err = os.Stat(elsewhere)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	text, err := os.ReadFile(elsewhere)
	require.NoError(t, err)
	require.Equal(t, "profiles:\n  a:\n    dsn: service=a\n", string(text))
	_, err = config.AddProfile(withMachine(config.Sources{}), "a")
	require.ErrorContains(t, err, "no folder for the configuration file is known")
}

// A link that leads nowhere is left alone, and the error does not name a temporary file.
func TestAddProfileAtABrokenLink(t *testing.T) {
	dir := home(t, "")
	path := filepath.Join(dir, "qtop", "config.yaml")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink(filepath.Join(dir, "gone"), path))
	_, err := config.AddProfile(withMachine(config.Sources{ConfigHome: dir, Flags: map[string]string{"dsn": "service=a"}}), "a")
	require.EqualError(t, err, "the configuration file is a link that leads nowhere (file "+path+"): remove the link, or make the file to which it leads")
}

// What looks like a password only if several words of a handler are read as one text is none: the
// profile is written, and others may read the file.
func TestHandlersWithoutPassword(t *testing.T) {
	dir := home(t, "")
	path := filepath.Join(dir, "qtop", "config.yaml")
	require.NoError(t, os.Chmod(path, 0o644))
	flags := map[string]string{"handlers": `[{"kind":"a","url":"https://h/x"},{"kind":"b","command":["send","--to","anna@example.com"]}]`}
	_, err := config.AddProfile(withMachine(config.Sources{ConfigHome: dir, Flags: flags}), "a")
	require.NoError(t, err)
	load(t, config.Sources{ConfigHome: dir})
}

// Every problem in the file is reported with its line.
func TestProblemsNameTheirLine(t *testing.T) {
	for name, x := range map[string]struct{ text, want string }{
		"unknown key":        {"theme: dark\n\nrefesh: 2s\n", `unknown key "refesh" (file PATH:3): did you mean refresh?`},
		"in a profile":       {"profiles:\n  a:\n    dsn: service=a\n    thme: dark\n", `unknown key "thme" (file PATH:4, profile "a"): did you mean theme?`},
		"in a group":         {"delivery:\n  per_endpoints: 3\n", `unknown key "delivery.per_endpoints" (file PATH:2): did you mean delivery.per_endpoint?`},
		"in a list":          {"theme: dark\nhandlers:\n  - {kind: a, comand: [b]}\n", `handlers entry 1 has the unknown key "comand" (file PATH:2): did you mean command?`},
		"a bad value":        {"\ntheme: pink\n", `theme cannot be "pink" (file PATH:2)`},
		"not a group":        {"theme: dark\ndelivery: 3\n", `"delivery" is a number (file PATH:2)`},
		"set twice":          {"delivery.per_endpoint: 3\ndelivery:\n  per_endpoint: 4\n", `set twice, once nested and once with a dot (file PATH:`},
		"a profile's kind":   {"profiles:\n  a: 3\n", `profile "a" is a number (file PATH:2)`},
		"the profiles' kind": {"theme: dark\nprofiles: 3\n", `profiles is a number (file PATH:2)`},
		"no such profile":    {"theme: dark\nprofile: prud\nprofiles:\n  prod: {dsn: service=a}\n", `there is no profile "prud" (file PATH:2): did you mean prod?`},
		"the same key twice": {"theme: dark\ndsn: service=a\ndsn: service=b\n", `"dsn" is set twice, first in line 2 (file PATH:3)`},
		"not YAML":           {"theme: dark\ndsn: 'service\n", `is not valid YAML`},
		"two documents":      {"theme: dark\n---\ntheme: light\n", `more than one document, separated by --- (file PATH:`},
	} {
		t.Run(name, func(t *testing.T) {
			got := problems(t, config.Sources{ConfigHome: home(t, x.text)})
			require.Len(t, got, 1)
			said := pathless.ReplaceAllString(got[0], "file PATH")
			require.Contains(t, said, x.want)
			require.Regexp(t, `\(file PATH:\d+`, said)
		})
	}
}
