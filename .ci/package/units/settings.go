package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// settings holds the values of a unit file and its drop-ins, by key; the instance name has
// replaced %i.
type settings struct {
	lines map[string][]string
	root  string
}

// settings reads the files in the order of systemd: the unit template of the package, then the
// drop-ins.
func (u *unit) settings() (settings, error) {
	s := settings{lines: map[string][]string{}, root: u.root}
	template, _, _ := strings.Cut(u.name, "@")
	drop, err := filepath.Glob(u.root + "/etc/systemd/system/" + u.name + ".service.d/*.conf")
	if err != nil {
		return s, err
	}
	for _, path := range append([]string{u.root + "/usr/lib/systemd/system/" + template + "@.service"}, drop...) {
		text, err := os.ReadFile(path)
		if err != nil {
			return s, err
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(key, "#") {
				s.lines[key] = append(s.lines[key], strings.ReplaceAll(value, "%i", u.instance))
			}
		}
	}
	return s, nil
}

// last returns the last value of a key, or "" if the key is not set.
func (s settings) last(key string) string {
	if all := s.lines[key]; len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// seconds returns the duration of a key; infinity is the longest there is.
func (s settings) seconds(key string, otherwise time.Duration) time.Duration {
	if s.last(key) == "infinity" {
		return math.MaxInt64
	}
	if d, err := time.ParseDuration(s.last(key)); err == nil {
		return d
	}
	return otherwise
}

// environment returns the variables that Environment and EnvironmentFile set.
func (s settings) environment() []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	for _, line := range s.lines["Environment"] {
		env = append(env, words(line)...)
	}
	for _, path := range s.lines["EnvironmentFile"] {
		text, err := os.ReadFile(s.root + strings.TrimPrefix(path, "-"))
		if err != nil {
			continue // a file with a leading "-" may be absent
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				env = append(env, line)
			}
		}
	}
	return env
}

// words splits a command line at spaces outside of quotes. $$ becomes a dollar sign.
func words(line string) (all []string) {
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, r := range strings.ReplaceAll(line, "$$", "$") {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inWord = r, true
		case quote == 0 && r == ' ':
			if inWord {
				all = append(all, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if inWord {
		all = append(all, word.String())
	}
	return all
}
