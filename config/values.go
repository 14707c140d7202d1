package config

// Parses single values: text, switches, numbers, durations, lists.

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/qtop/qtop/pgclient/queue"
)

// parser turns text (of a flag or variable) or a YAML value into the value of a field.
type parser func(raw any) (any, *bad)

// bad says what is wrong with a value (a phrase that follows the key's name), and what to do.
type bad struct{ what, do string }

func text(name, def string, parse parser, help string) key {
	return key{KeyInfo: KeyInfo{Name: name, Type: "text", Help: help}, def: def, parse: parse,
		show: func(v any) string {
			if s := fmt.Sprint(v); !mayHoldPassword(s) {
				return s
			}
			return masked
		}}
}

// connection declares a key whose value is a connection string, which may contain a password.
func connection(name string, judge func(string) (what, do string), help string) key {
	k := text(name, "", func(raw any) (any, *bad) { return dsnText(raw, judge) }, help)
	k.show = func(v any) string { return maskDSN(fmt.Sprint(v)) }
	return k
}

func flag(name string, def bool, help string) key {
	return key{KeyInfo: KeyInfo{Name: name, Type: "bool", Help: help}, def: def, parse: boolean,
		show: func(v any) string { return fmt.Sprint(v) }}
}

func number(name string, def, least, most int, help string) key {
	return key{KeyInfo: KeyInfo{Name: name, Type: "number", Help: help}, def: def, parse: within(least, most),
		show: func(v any) string { return fmt.Sprint(v) }}
}

func duration(name string, def, least, most time.Duration, help string) key {
	return key{KeyInfo: KeyInfo{Name: name, Type: "duration", Help: help}, def: def, parse: lasting(least, most),
		show: func(v any) string { d, _ := v.(time.Duration); return queue.DurationText(d) }}
}

func list(name string, def any, parse parser, help string) key {
	return key{KeyInfo: KeyInfo{Name: name, Type: "list", Help: help}, def: def, parse: parse, show: showList}
}

// plainText accepts any printable text. YAML reads an unquoted 42 as a number, which is accepted as
// a name, as it is written; true and false are refused, because they are more likely mistakes.
func plainText(raw any) (any, *bad) {
	var s string
	switch v := raw.(type) {
	case nil:
		return nil, &bad{"has no value", "give it one or take the line out"}
	case string:
		s = v
	case numeral:
		s = v.text
	case int, int64, uint64, float64: // in JSON
		s = fmt.Sprint(v)
	default:
		return nil, &bad{"must be text, not " + kindOf(raw), "put it in quotes"}
	}
	if !utf8.ValidString(s) {
		return nil, &bad{"is not valid UTF-8", "write it in UTF-8"}
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return nil, &bad{fmt.Sprintf("holds the unprintable character %U", r), "take it out"}
		}
	}
	if strings.TrimSpace(s) != s {
		return nil, &bad{"begins or ends with a space", "take it out"}
	}
	return s, nil
}

// personName accepts a plain text that can be the actor of an action.
func personName(raw any) (any, *bad) {
	v, b := plainText(raw)
	if s, _ := v.(string); b == nil && utf8.RuneCountInString(s) > queue.MostActor {
		return nil, &bad{fmt.Sprintf("has more than %d characters", queue.MostActor), "shorten it"}
	}
	return v, b
}

func oneOf(names []string) parser {
	return func(raw any) (any, *bad) {
		v, b := plainText(raw)
		if b != nil {
			return nil, b
		}
		s, _ := v.(string)
		for _, name := range names {
			if s == name {
				return s, nil
			}
		}
		return nil, &bad{"cannot be " + quote(s), "use one of " + strings.Join(names, ", ")}
	}
}

func boolean(raw any) (any, *bad) {
	switch v := unwritten(raw).(type) {
	case bool:
		return v, nil
	case string:
		if on, ok := queue.Switch(v); ok {
			return on, nil
		}
		return nil, &bad{"cannot be " + quote(v), "use true or false"}
	}
	return nil, &bad{"must be true or false, not " + kindOf(raw), "use true or false"}
}

// leadingZero matches a whole number that older YAML takes for an octal one.
var leadingZero = regexp.MustCompile(`^[+-]?0[0-9]+$`)

func within(least, most int) parser {
	return func(raw any) (any, *bad) {
		do := fmt.Sprintf("use a whole number from %d to %d", least, most)
		var n int
		if y, ok := raw.(numeral); ok && leadingZero.MatchString(y.text) { // YAML reads 010 as 8, and 08 as no whole number
			raw = y.text
		}
		switch v := unwritten(raw).(type) {
		case int:
			n = v
		case string:
			var err error
			if n, err = strconv.Atoi(v); err != nil {
				return nil, &bad{"cannot be " + quote(v), do}
			}
		case int64, uint64, float64: // such as 1e3, 2.5, or a number that is too large
			return nil, &bad{fmt.Sprintf("cannot be %v", v), do}
		default:
			return nil, &bad{"must be a number, not " + kindOf(raw), do}
		}
		if n < least || n > most {
			return nil, &bad{fmt.Sprintf("cannot be %d", n), do}
		}
		return n, nil
	}
}

func lasting(least, most time.Duration) parser {
	return func(raw any) (any, *bad) {
		do := fmt.Sprintf("use a time from %s to %s with its unit, such as 500ms, 2s or 5m", queue.DurationText(least), queue.DurationText(most))
		s, ok := raw.(string)
		if !ok {
			// A number without a unit would be nanoseconds in Go and seconds for a reader.
			return nil, &bad{"must be a time with its unit, not " + kindOf(raw), do}
		}
		d, ok := queue.Duration(s)
		if !ok || d < least || d > most {
			return nil, &bad{"cannot be " + quote(s), do}
		}
		return d, nil
	}
}

// address accepts host:port, :port, or an empty text.
func address(raw any) (any, *bad) {
	v, b := plainText(raw)
	if b != nil {
		return nil, b
	}
	s, _ := v.(string)
	if s == "" {
		return s, nil
	}
	do := "use HOST:PORT, such as 127.0.0.1:9187, or :9187 for every interface"
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return nil, &bad{"cannot be " + quote(s), do}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return nil, &bad{"has the port " + quote(port), do}
	}
	return s, nil
}

// parts accepts a YAML list, or text with commas between the entries.
func parts(raw any) ([]string, *bad) {
	var items []any
	switch v := raw.(type) {
	case string:
		if strings.TrimSpace(v) == "" {
			return nil, nil
		}
		for item := range strings.SplitSeq(v, ",") {
			items = append(items, strings.TrimSpace(item))
		}
	case []any:
		items = v
	default:
		return nil, &bad{"must be a list, not " + kindOf(raw), "write [a, b] in the file, a,b elsewhere"}
	}
	out := make([]string, len(items))
	for i, item := range items {
		v, b := plainText(item)
		if b != nil {
			return nil, &bad{fmt.Sprintf("entry %d %s", i+1, b.what), b.do}
		}
		s, _ := v.(string)
		if s == "" {
			return nil, &bad{fmt.Sprintf("entry %d is empty", i+1), "fill it or take it out"}
		}
		out[i] = s
	}
	return out, nil
}

// names parses a list of names, each once. Whether a name exists is checked by the part of qtop
// that uses the list.
func names(raw any) (any, *bad) {
	all, b := parts(raw)
	if b != nil {
		return nil, b
	}
	seen := map[string]bool{}
	for _, name := range all {
		if seen[name] {
			return nil, &bad{"holds " + quote(name) + " twice", "take one out"}
		}
		seen[name] = true
	}
	return all, nil
}

func noPrefixes() []netip.Prefix { return nil }

func prefixes(raw any) (any, *bad) {
	all, b := parts(raw)
	if b != nil {
		return nil, b
	}
	out := noPrefixes()
	for _, s := range all {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			do := "use networks such as 10.0.0.0/8 or ::1/128"
			if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
				do = fmt.Sprintf("write %s/%d for this one address", a, a.BitLen())
			}
			return nil, &bad{"cannot be " + quote(s), do}
		}
		// An IPv4-mapped IPv6 network would never match, because addresses are
		// converted to IPv4 before they are compared.
		if p.Addr().Is4In6() {
			return nil, &bad{"holds the mapped address " + quote(s), "write the IPv4 network itself"}
		}
		if p != p.Masked() {
			return nil, &bad{"holds " + quote(s) + ", an address inside a network", "write " + p.Masked().String() + " for the network"}
		}
		out = append(out, p)
	}
	return out, nil
}

// kindOf names the type of a YAML value, without showing the value.
func kindOf(raw any) string {
	switch unwritten(raw).(type) {
	case nil:
		return "nothing"
	case string:
		return "text"
	case bool:
		return "a switch (true or false)"
	case int, int64, uint64, float64:
		return "a number"
	case []any:
		return "a list"
	case time.Time:
		return "a date"
	}
	return "a group of keys"
}
