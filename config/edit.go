package config

// Changes to single lines of the configuration file; all other lines stay unchanged.

import (
	"bytes"
	"cmp"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// AddProfile writes a new profile with the settings in src.Flags into the configuration file, and
// returns the path of the file. If there is no file, AddProfile makes one that only its owner can
// read. In an existing file every other line stays unchanged, comments too. The error, if any, is a
// Problems: the file is no valid configuration or cannot be written, a setting is wrong or contains
// a password, or the profile exists already.
func AddProfile(src Sources, name string) (path string, err error) {
	path = File(src)
	return path, changeFile(path, func(text []byte) ([]byte, error) { return withProfile(src, text, name) })
}

// UseProfile makes a profile the one that is used if neither a flag nor a variable names another,
// and returns the path of the configuration file. Every other line of the file stays unchanged. The
// error, if any, is a Problems: the file is no valid configuration or cannot be written, or there
// is no such profile.
func UseProfile(src Sources, name string) (path string, err error) {
	path = File(src)
	return path, changeFile(path, func(text []byte) ([]byte, error) { return usingProfile(src, text, name) })
}

// withProfile returns the text of a configuration file with a profile added.
func withProfile(src Sources, text []byte, name string) ([]byte, error) {
	e, err := newEdit(src, text, name)
	if err != nil {
		return nil, err
	}
	if len(src.Flags) == 0 {
		return nil, e.refuse("a profile without settings changes nothing", "command line", "give it at least --dsn")
	}
	values := e.flagValues(src.Flags)
	if _, ok := values["profile"]; ok {
		e.problem("a profile cannot choose a profile", "flag --profile", "leave it out")
	}
	if len(e.problems) > 0 {
		return nil, e.problems
	}
	profiles, _ := e.settings["profiles"].(map[string]any)
	if _, exists := profiles[name]; exists {
		return nil, e.refuse("the profile "+quote(name)+" exists", e.where+e.lines.below("profiles").at(name), "choose another name, or change its lines in the file")
	}
	wanted := map[string]any{}
	var entry []string
	group := ""
	for _, k := range e.keys {
		v, ok := values[k.Name]
		if !ok {
			continue
		}
		above, last, nested := strings.Cut(k.Name, ".")
		if !nested {
			above, last = "", k.Name
		}
		if above != group && nested {
			entry = append(entry, "  "+above+":")
		}
		group = above
		raw, written := yamlOf(k, v.v, e.given(src.Flags, k))
		entry = append(entry, strings.Repeat("  ", strings.Count(k.Name, ".")+1)+last+": "+written)
		into := wanted
		if nested {
			if _, ok := wanted[above]; !ok {
				wanted[above] = map[string]any{}
			}
			into, _ = wanted[above].(map[string]any)
		}
		into[last] = raw
	}
	entry = append([]string{scalar(name) + ":"}, entry...)
	if profiles == nil {
		profiles = map[string]any{}
	}
	profiles[name] = wanted
	e.settings["profiles"] = profiles

	key := e.lines.keys["profiles"]
	if key == nil {
		return e.result(len(e.text), append([]string{"profiles:"}, indented(entry, "  ")...))
	}
	indent, at := "  ", key.Line // the line after the key
	if all := e.lines.inner["profiles"]; all.Kind == yaml.MappingNode && len(all.Content) > 0 {
		indent = strings.Repeat(" ", all.Content[0].Column-1)
		at = e.endOf(key.Line)
	}
	return e.result(at, indented(entry, indent))
}

// usingProfile returns the text of a configuration file with another profile in use.
func usingProfile(src Sources, text []byte, name string) ([]byte, error) {
	e, err := newEdit(src, text, name)
	if err != nil {
		return nil, err
	}
	profiles, _ := e.settings["profiles"].(map[string]any)
	if _, ok := profiles[name]; !ok {
		return nil, e.refuse("there is no profile "+quote(name), e.where+e.lines.at("profiles"), insteadOf(name, profiles))
	}
	e.settings["profile"] = name
	key := e.lines.keys["profile"]
	if key == nil {
		at := max(e.lines.line("profiles")-1, 0)
		for at > 0 && strings.HasPrefix(e.text[at-1], "#") { // insert above the comments that belong to the key profiles
			at--
		}
		return e.result(at, []string{"profile: " + scalar(name)})
	}
	value := e.lines.inner["profile"]
	line := e.text[key.Line-1]
	head, _, _ := strings.Cut(line, ":")
	tail := line[len(strings.TrimRight(line, "\r")):]
	if at := strings.LastIndex(line, cmp.Or(value.LineComment, key.LineComment, "\n")); at >= 0 {
		tail = line[len(strings.TrimRight(line[:at], " \t")):]
	}
	e.text[key.Line-1] = head + ": " + scalar(name) + tail
	return e.result(0, nil)
}

// edit is a change to the text of a configuration file.
type edit struct {
	loader
	where    string         // "file PATH"
	mark     string         // the byte order mark at the beginning of the file, "" = none
	text     []string       // the lines, without \n; a line of a file of Windows ends in \r
	end      string         // of a new line: "" or \r
	settings map[string]any // the settings that the changed file must have
	lines    place
}

func newEdit(src Sources, text []byte, name string) (*edit, error) {
	if src.Seen == nil {
		src.Seen = func(string) {}
	}
	e := &edit{loader: loader{keys: keys(src), env: environ(src.Environ), seen: src.Seen}}
	e.where = "file " + configPath(src.ConfigHome, e.env)
	if _, bad := plainText(name); bad != nil || name == "" {
		return nil, e.refuse("a profile cannot be called "+quote(name), "command line", "give it a name that can be typed")
	}
	e.seen(string(text))
	var bad *yamlError
	if e.settings, e.lines, bad = decodeYAML(text); bad != nil {
		return nil, e.refuse(bad.what, e.where+bad.at(), "correct it")
	}
	if e.settings == nil {
		e.settings = map[string]any{}
	}
	if strangeBreak.Match(text) { // YAML counts other lines than an edit would
		return nil, e.refuse(unfit, e.where, withEditor)
	}
	if bytes.Contains(text, []byte("\r\n")) {
		e.end = "\r"
	}
	rest, marked := strings.CutPrefix(string(text), byteOrderMark)
	if marked {
		e.mark = byteOrderMark
	}
	if rest != "" {
		last, ended := strings.CutSuffix(rest, "\n")
		if !ended {
			last += e.end
		}
		e.text = strings.Split(last, "\n")
	}
	return e, nil
}

const (
	byteOrderMark = "\ufeff"
	unfit         = "the file is written in a form that cannot be changed line by line"
	withEditor    = "change it with an editor"
)

// strangeBreak matches what ends a line for YAML alone: \r without \n, and three characters of Unicode.
var strangeBreak = regexp.MustCompile("\r(?:[^\n]|$)|[\u0085\u2028\u2029]")

func (e *edit) refuse(what, where, do string) error {
	return Problems{{What: what, Where: where, Do: do}}
}

// endOf returns the line at which the value of a top-level key ends. Comments
// without indentation after the value belong to the next key.
func (e *edit) endOf(line int) int {
	next := 0
	for _, key := range e.lines.keys {
		if key.Column == 1 && key.Line > line && (next == 0 || key.Line < next) {
			next = key.Line
		}
	}
	end := len(e.text)
	if next > 0 {
		for end = next - 1; end > 0 && strings.HasPrefix(e.text[end-1], "#"); {
			end--
		}
	}
	for end > 0 && strings.TrimSpace(e.text[end-1]) == "" {
		end--
	}
	return end
}

// result inserts the lines more after line at, and returns the new text. It
// returns an error if the file would then not have the intended settings,
// because some forms of YAML (such as {…} on one line) do not allow an
// insertion.
func (e *edit) result(at int, more []string) ([]byte, error) {
	all := append([]string(nil), e.text[:at]...)
	for _, line := range more {
		all = append(all, line+e.end)
	}
	text := []byte(e.mark + strings.Join(append(all, e.text[at:]...), "\n") + "\n")
	got, _, bad := decodeYAML(text)
	if bad != nil || !reflect.DeepEqual(got, e.settings) {
		return nil, e.refuse(unfit, e.where, withEditor)
	}
	return text, nil
}

// given returns the value of a flag, which may be given under the name of the key or of the flag.
func (e *edit) given(flags map[string]string, k key) string {
	if s, ok := flags[k.Name]; ok {
		return s
	}
	return flags[k.Flag]
}

// yamlOf returns a setting as YAML reads it, and as it is written: switches and numbers as such,
// everything else as the text that the flag had.
func yamlOf(k key, v any, given string) (raw any, written string) {
	switch v := v.(type) {
	case bool:
		return v, k.show(v)
	case int:
		return numeral{k.show(v), v}, k.show(v)
	default:
		return given, scalar(given)
	}
}

// scalar returns a text as a YAML value on one line, in quotes if needed.
func scalar(s string) string {
	node := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	out, err := yaml.Marshal(&node)
	if err != nil || bytes.Count(out, []byte("\n")) > 1 {
		node.Style = yaml.DoubleQuotedStyle
		out, _ = yaml.Marshal(&node)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func indented(lines []string, indent string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = indent + line
	}
	return out
}
