package config

// The sources of values, for `qtop config show --origin`, and the list of profiles.

import (
	"cmp"
	"slices"
	"strconv"
)

// Origin is the value of one setting and its source.
type Origin struct {
	Key   string `json:"key"`
	Value string `json:"value"` // as it would be written, passwords masked
	From  string `json:"from"`  // "flag --dsn", "env QTOP_DSN", "file …, profile …", "default"

	profile bool // it is the value of a profile
}

// Profile is a profile of the configuration file.
type Profile struct {
	Name     string   `json:"profile"`
	Line     int      `json:"line"`     // the line of its name in the file
	Settings []Origin `json:"settings"` // the settings of the profile, in the order of Keys; passwords masked
}

// Profiles lists the profiles of the configuration file in the order of the file. Values that
// cannot be parsed are left out; Load returns them as problems.
func (s Settings) Profiles() []Profile {
	return append([]Profile(nil), s.profiles...)
}

func (l *loader) profiles(file configFile) []Profile {
	var all []Profile
	for name, values := range file.profiles {
		p := Profile{Name: name, Line: file.lines[name], Settings: []Origin{}}
		for _, k := range l.keys {
			if v, ok := values[k.Name]; ok {
				p.Settings = append(p.Settings, Origin{Key: k.Name, Value: v.text, From: "line " + strconv.Itoa(v.line)})
			}
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Profile) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Name, b.Name)) })
	return all
}

// Warnings lists what does not stop qtop, such as QTOP_ variables with unknown names.
func (s Settings) Warnings() Problems { return s.warnings }

// Origins lists every setting in the order of Keys.
func (s Settings) Origins() []Origin {
	return append([]Origin(nil), s.origins...)
}

// FromProfile reports whether the value of a setting is that of the profile in use.
func (s Settings) FromProfile(key string) bool {
	return slices.ContainsFunc(s.origins, func(o Origin) bool { return o.Key == key && o.profile })
}

func (l *loader) origins() []Origin {
	all := make([]Origin, len(l.keys))
	for i, k := range l.keys {
		all[i] = l.found[k.Name]
	}
	return all
}
