package config

// Parses the two lists whose entries have several parts: handlers and secrets.

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// handlers parses a YAML list of maps, or JSON of the same shape as text.
func handlers(raw any) (any, *bad) {
	const do = `use a list of {kind, command} or {kind, url}, in a variable as JSON: [{"kind":"resize","command":["/usr/bin/resize","-"]}]`
	if s, ok := raw.(string); ok {
		if strings.TrimSpace(s) == "" {
			return []Handler(nil), nil
		}
		dec := json.NewDecoder(strings.NewReader(s))
		raw = nil
		if err := dec.Decode(&raw); err != nil {
			return nil, &bad{"is not JSON: " + oneLine(err.Error()), do}
		}
		if _, err := dec.Token(); err != io.EOF {
			return nil, &bad{"has something after the JSON list", do}
		}
	}
	entries, ok := raw.([]any)
	if !ok {
		return nil, &bad{"must be a list, not " + kindOf(raw), do}
	}
	var out []Handler
	for i, entry := range entries {
		h, b := handler(entry)
		if b == nil && slices.ContainsFunc(out, func(o Handler) bool { return o.Kind == h.Kind }) {
			b = &bad{"binds kind " + quote(h.Kind) + " again", "keep one of them"}
		}
		if b != nil {
			return nil, &bad{fmt.Sprintf("entry %d %s", i+1, b.what), b.do}
		}
		out = append(out, h)
	}
	return out, nil
}

func handler(entry any) (Handler, *bad) {
	m, b := group(entry, []string{"kind", "command", "url", "timeout"})
	if b != nil {
		return Handler{}, b
	}
	h := Handler{Timeout: time.Hour}
	if h.Kind, b = member(m, "kind"); b != nil {
		return Handler{}, b
	}
	_, command := m["command"]
	_, link := m["url"]
	switch {
	case command == link:
		return Handler{}, &bad{"needs either command or url", "give exactly one of them"}
	case command:
		if h.Command, b = argv(m["command"]); b != nil {
			return Handler{}, b
		}
	default:
		if h.URL, b = member(m, "url"); b != nil {
			return Handler{}, b
		}
		u, err := url.Parse(h.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
			return Handler{}, &bad{"has a url that is not one", "use https://HOST/PATH"}
		}
	}
	if raw, ok := m["timeout"]; ok {
		v, b := lasting(time.Second, 24*time.Hour)(raw)
		if b != nil {
			return Handler{}, &bad{"has a timeout that " + b.what, b.do}
		}
		h.Timeout, _ = v.(time.Duration)
	}
	return h, nil
}

// argv accepts only a list: one line of text would have to be split by a
// shell, and qtop runs none.
func argv(raw any) ([]string, *bad) {
	const do = "write it as a list of the program and its arguments: [/usr/bin/resize, --in, -]"
	items, ok := raw.([]any)
	if !ok {
		return nil, &bad{"has a command that is " + kindOf(raw), do}
	}
	out := make([]string, len(items))
	for i, item := range items {
		s, ok := item.(string)
		if !ok {
			return nil, &bad{fmt.Sprintf("has %s as word %d of its command", kindOf(item), i+1), "put it in quotes"}
		}
		if strings.ContainsRune(s, 0) {
			return nil, &bad{fmt.Sprintf("has a NUL byte in word %d of its command", i+1), "take it out"}
		}
		out[i] = s
	}
	if len(out) == 0 || out[0] == "" {
		return nil, &bad{"has an empty command", do}
	}
	return out, nil
}

// secrets parses a YAML list of maps, or REF=env:NAME,REF=file:PATH as text. The text after = is
// never shown, because somebody may have written the secret itself there.
func secrets(raw any) (any, *bad) {
	const do = "use a list of {ref, from: env:NAME | file:PATH}, in a variable REF=env:NAME,REF=file:PATH"
	var entries []any
	switch v := raw.(type) {
	case string:
		if strings.TrimSpace(v) == "" {
			return []Secret(nil), nil
		}
		n := 0
		for item := range strings.SplitSeq(v, ",") {
			n++
			ref, from, ok := strings.Cut(strings.TrimSpace(item), "=")
			if !ok {
				return nil, &bad{fmt.Sprintf("entry %d has no =", n), do}
			}
			entries = append(entries, map[string]any{"ref": ref, "from": from})
		}
	case []any:
		entries = v
	default:
		return nil, &bad{"must be a list, not " + kindOf(raw), do}
	}
	var out []Secret
	for i, entry := range entries {
		s, b := secret(entry)
		if b == nil && slices.Contains(out, s) {
			b = &bad{"repeats an earlier entry", "take one out; the same ref may stand twice with two sources"}
		}
		if b != nil {
			return nil, &bad{fmt.Sprintf("entry %d %s", i+1, b.what), b.do}
		}
		out = append(out, s)
	}
	return out, nil
}

func secret(entry any) (Secret, *bad) {
	const do = "use env:NAME or file:/ABSOLUTE/PATH; never write the secret itself into a configuration"
	m, b := group(entry, []string{"ref", "from"})
	if b != nil {
		return Secret{}, b
	}
	var s Secret
	if s.Ref, b = member(m, "ref"); b != nil {
		return Secret{}, b
	}
	from, b := member(m, "from")
	if b != nil {
		return Secret{}, b
	}
	kind, name, _ := strings.Cut(from, ":")
	switch kind {
	case "env":
		if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(name) {
			return Secret{}, &bad{"names no environment variable in from", do}
		}
		s.Env = name
	case "file":
		// A relative path would mean different files: a console and a service start in different
		// folders.
		if !filepath.IsAbs(name) {
			return Secret{}, &bad{"has a path in from that is not absolute", do}
		}
		s.File = filepath.Clean(name)
	default:
		return Secret{}, &bad{"has a from that is neither env: nor file:", do}
	}
	return s, nil
}

// group returns the parts of an entry, and refuses parts that it does not know.
func group(entry any, parts []string) (map[string]any, *bad) {
	m, ok := entry.(map[string]any)
	if !ok {
		return nil, &bad{"is " + kindOf(entry), "give it the keys " + strings.Join(parts, ", ")}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(parts, name) {
			return nil, &bad{"has the unknown key " + quote(name), meant(name, "", parts)}
		}
	}
	return m, nil
}

// member returns a required part of an entry, as text.
func member(m map[string]any, name string) (string, *bad) {
	raw, ok := m[name]
	if !ok {
		return "", &bad{"has no " + name, "give it one"}
	}
	v, b := plainText(raw)
	if b != nil {
		return "", &bad{"has a " + name + " that " + b.what, b.do}
	}
	s, _ := v.(string)
	if s == "" {
		return "", &bad{"has an empty " + name, "give it one"}
	}
	return s, nil
}

// showList returns a list as it would be written, without what may be a secret.
func showList(v any) string {
	var out []string
	switch all := v.(type) {
	case []string:
		for _, s := range all {
			if mayHoldPassword(s) {
				s = masked
			}
			out = append(out, s)
		}
	case []netip.Prefix:
		for _, p := range all {
			out = append(out, p.String())
		}
	case []Secret:
		for _, s := range all {
			if s.Env != "" {
				out = append(out, s.Ref+"=env:"+s.Env)
			} else {
				out = append(out, s.Ref+"=file:"+s.File)
			}
		}
	case []Handler:
		for _, h := range all {
			if h.URL != "" {
				out = append(out, h.Kind+" → "+showEndpoint(h.URL))
			} else {
				// Only the program is shown, because an argument may be a token.
				out = append(out, h.Kind+" → "+quote(h.Command[0]))
			}
		}
	}
	return strings.Join(out, ",")
}

// showEndpoint returns a URL with only its host, because the path or the query may have a token.
func showEndpoint(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return masked
	}
	shown := u.Scheme + "://" + u.Host
	if strings.Trim(u.EscapedPath(), "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		shown += "/" + masked
	}
	return shown
}
