package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/qtop/qtop/pgclient/queue"
)

// yamlError says why a text is no valid configuration file, and in which line the mistake is.
type yamlError struct {
	what string
	line int // 0 = unknown
}

func (e *yamlError) at() string { return atLine(e.line) }

// atLine is the suffix of a file name that names a line: ":7", or nothing if the line is unknown.
func atLine(line int) string {
	if line == 0 {
		return ""
	}
	return ":" + strconv.Itoa(line)
}

// place knows in which lines of the file the keys of one mapping are. The zero
// value knows no lines.
type place struct {
	line0 int // of the mapping itself; 0 = unknown
	keys  map[string]*yaml.Node
	inner map[string]*yaml.Node
}

// placeOf reads the lines of a mapping. The keys of a mapping inside it get its key and a dot:
// delivery.per_endpoint.
func placeOf(n *yaml.Node, line int) place {
	p := place{line0: line, keys: map[string]*yaml.Node{}, inner: map[string]*yaml.Node{}}
	p.add(n, "")
	return p
}

func (p place) add(n *yaml.Node, above string) {
	if n == nil || n.Kind != yaml.MappingNode {
		return // the value of an alias gets the line of the alias
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := above + n.Content[i].Value
		p.keys[name], p.inner[name] = n.Content[i], n.Content[i+1]
		p.add(n.Content[i+1], name+".")
	}
}

// line returns the line of a key, or of the nearest group above it; 0 = unknown.
func (p place) line(name string) int {
	for ; name != ""; name = name[:max(strings.LastIndexByte(name, '.'), 0)] {
		if key := p.keys[name]; key != nil {
			return key.Line
		}
	}
	return p.line0
}

func (p place) at(name string) string { return atLine(p.line(name)) }

// below returns the place of the mapping that is the value of a key.
func (p place) below(name string) place { return placeOf(p.inner[name], p.line(name)) }

var (
	yamlLine = regexp.MustCompile(`\bline (\d+): `)
	// yamlValue matches all from the first to the last value that a message of the YAML library
	// quotes, which may be a password and have quotes itself; or a key that is no text.
	yamlValue = regexp.MustCompile("(?s)[`'\"].*[`'\"]|map\\[.*|\\[\\]interface.*")
)

// notYAML returns an error of the YAML library without the values that it quotes.
func notYAML(err error) *yamlError {
	msg := yamlValue.ReplaceAllString(err.Error(), "a value")
	line := 0
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = strings.Replace(msg, m[0], "", 1)
	}
	msg = strings.TrimPrefix(strings.TrimPrefix(msg, "yaml: "), "unmarshal errors:")
	return &yamlError{"the configuration file is not valid YAML: " + oneLine(msg), line}
}

// beginning adds to an error about a character that can begin nothing which one that is: a tab in
// front of a key, or one before which a value needs quotes. The library gives no number to line 1.
func (e *yamlError) beginning(text []byte) *yamlError {
	if !strings.HasSuffix(e.what, "found character that cannot start any token") {
		return e
	}
	e.line = max(e.line, 1)
	lines := bytes.Split(text, []byte("\n"))
	if e.line <= len(lines) && bytes.HasPrefix(bytes.TrimLeft(lines[e.line-1], " "), []byte("\t")) {
		e.what += ": a tab is in front of it, where only spaces may be"
	} else {
		e.what += ": a value that begins with @, %, a backquote or a tab needs quotes"
	}
	return e
}

// plainKey matches a key that is shown in an error. Any other may be a password in a wrong place.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,60}$`)

// twice returns an error for the first key that a mapping has twice; nil if no mapping has one.
func twice(n *yaml.Node) *yamlError {
	first := map[string]int{}
	for i, inner := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && inner.Kind == yaml.ScalarNode {
			if line, has := first[inner.Value]; has {
				name := "a key"
				if plainKey.MatchString(inner.Value) {
					name = quote(inner.Value)
				}
				return &yamlError{fmt.Sprintf("%s is set twice, first in line %d", name, line), inner.Line}
			}
			first[inner.Value] = inner.Line
		}
		if bad := twice(inner); bad != nil {
			return bad
		}
	}
	return nil
}

// parseYAML returns the single YAML document of a text; nil if the text has none.
func parseYAML(text []byte) (*yaml.Node, *yamlError) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, next yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, notYAML(err).beginning(text)
	}
	switch err := dec.Decode(&next); {
	case errors.Is(err, io.EOF):
		return doc.Content[0], nil
	case err != nil:
		return nil, notYAML(err).beginning(text)
	default:
		return nil, &yamlError{"the configuration file holds more than one document, separated by ---", next.Line}
	}
}

// decodeYAML returns the content of a configuration file, and the lines of its keys. viper's
// ReadConfig is not used, because it ignores case, so that of 'dsn' and 'DSN' one would win by
// chance, and because it drops keys without a value and profiles without keys.
func decodeYAML(text []byte) (map[string]any, place, *yamlError) {
	root, bad := parseYAML(text)
	settings := map[string]any{}
	if bad != nil || root == nil {
		return settings, place{}, bad
	}
	if root.Kind != yaml.MappingNode && root.Tag != "!!null" {
		return nil, place{}, &yamlError{"the configuration file holds " + queue.Choose(root.Kind == yaml.SequenceNode, "a list", "text") + " and no keys, such as dsn: service=prod", root.Line}
	}
	keysAsText(root)
	if bad := twice(root); bad != nil {
		return nil, place{}, bad
	}
	if err := root.Decode(&settings); err != nil {
		return nil, place{}, notYAML(err)
	}
	for name, v := range settings {
		settings[name] = textKeys(v)
	}
	asWritten(settings, root)
	return settings, placeOf(root, 0), nil
}

// keysAsText makes the keys that YAML would read as numbers, switches or dates texts as they are
// written: a profile may have the name 2026, 1.10 or no.
func keysAsText(n *yaml.Node) {
	for i, inner := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && inner.Kind == yaml.ScalarNode && inner.Tag != "!!merge" {
			inner.Tag = "!!str"
		}
		keysAsText(inner)
	}
}

// numeral is a value that YAML reads as a number or a date, and its text: 010 is the name 010, and
// the number 8 of YAML (within takes it for 10).
type numeral struct {
	text string
	v    any
}

// unwritten returns a value as YAML reads it.
func unwritten(raw any) any {
	if n, ok := raw.(numeral); ok {
		return n.v
	}
	return raw
}

// asWritten replaces the numbers and dates in a value, which the node n has, by numerals.
func asWritten(v any, n *yaml.Node) any {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range membersOf(n) {
			if value, has := v[name]; has {
				v[name] = asWritten(value, inner)
			}
		}
	case []any:
		for i := range min(len(v), len(n.Content)) {
			v[i] = asWritten(v[i], n.Content[i])
		}
	case int, int64, uint64, float64, time.Time:
		if n.Kind == yaml.ScalarNode {
			return numeral{n.Value, v}
		}
	}
	return v
}

// membersOf returns the values of a mapping by their keys, also those that it merges in with <<.
func membersOf(n *yaml.Node) map[string]*yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	all := map[string]*yaml.Node{}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			all[n.Content[i].Value] = n.Content[i+1]
			continue
		}
		merged := []*yaml.Node{n.Content[i+1]}
		if merged[0].Kind == yaml.SequenceNode {
			merged = merged[0].Content
		}
		for _, one := range merged {
			for name, inner := range membersOf(one) {
				if _, has := all[name]; !has {
					all[name] = inner
				}
			}
		}
	}
	return all
}

// textKeys turns the keys that keysAsText leaves, which are those of aliases and merges, into text.
func textKeys(v any) any {
	switch v := v.(type) {
	case map[any]any:
		out := make(map[string]any, len(v))
		for name, inner := range v {
			out[fmt.Sprint(name)] = textKeys(inner)
		}
		return out
	case map[string]any:
		for name, inner := range v {
			v[name] = textKeys(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = textKeys(inner)
		}
	}
	return v
}
