package views

// How values are shown by their type: short on the screen, exact in the table of a verb.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// shown is a member on the screen. Names say the unit, as they do in JSON.
func (e Env) shown(name string, v any) string {
	switch v := v.(type) {
	case queue.Text:
		return v.String()
	case string: // of a fixed set in our schema, of anything in another
		return queue.Clean(v).String()
	case []queue.Text:
		return joinTexts(v)
	case time.Time:
		return e.Clock(v)
	case nil:
		return e.Theme.G.Dash
	case int64:
		if strings.HasSuffix(name, "_seconds") {
			return Age(v)
		}
		return Count(v)
	case int:
		return strconv.Itoa(v)
	case float64:
		if strings.HasSuffix(name, "_ms") {
			return Millis(v)
		}
		return Rate(v)
	}
	return fmt.Sprint(v)
}

// ago is how long ago a time was.
func ago(e Env, v any) string {
	if t, ok := v.(time.Time); ok && !t.IsZero() {
		return e.Ago(t)
	}
	return e.Theme.G.Dash
}

// orDashed is a text, a dash where it is empty, or a number, a dash where it is 0.
func orDashed(e Env, v any) string {
	switch v := v.(type) {
	case int64:
		return idOrDash(v, e)
	case queue.Text:
		return orDash(v.String(), e)
	}
	return fmt.Sprint(v)
}

// short returns the beginning of an id, long enough to distinguish it from other ids.
func short(_ Env, v any) string { return ShortID(fmt.Sprint(v)) }

// stamped is a time to the second.
func stamped(e Env, v any) string {
	if t, ok := v.(time.Time); ok {
		return e.Stamp(t)
	}
	return e.Theme.G.Dash
}

// digits is a number that names something: its thousands are not apart.
func digits(_ Env, v any) string { return fmt.Sprint(v) }

// everything is a narrowing of a rule, in words where it narrows nothing.
func everything(_ Env, v any) string {
	if t, ok := v.(queue.Text); ok {
		return orEvery(t)
	}
	return fmt.Sprint(v)
}

// plain is a member in the table of a verb: a time is RFC 3339, what is absent a dash.
func plain(name string, v any) string {
	switch v := v.(type) {
	case queue.Text:
		return v.String()
	case string: // of a fixed set in our schema, of anything in another
		return queue.Clean(v).String()
	case []queue.Text:
		return joinTexts(v)
	case json.RawMessage:
		return queue.Clean(string(v)).String()
	case time.Time:
		return PlainTime(&v)
	case nil:
		return "-"
	case int64:
		if strings.HasSuffix(name, "_seconds") {
			return PlainAge(v)
		}
		return strconv.FormatInt(v, 10)
	case float64:
		if strings.HasSuffix(name, "_ms") {
			return strconv.FormatFloat(v, 'f', 0, 64) + " ms"
		}
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return fmt.Sprint(v)
}

// compared is a member as a filter compares it; what is absent matches nothing.
func compared(name string, v any) (any, bool) {
	switch v := v.(type) {
	case queue.Text:
		return v.String(), true
	case []queue.Text:
		return allTexts(v), true
	case nil:
		return nil, false
	case int64:
		if strings.HasSuffix(name, "_seconds") {
			return time.Duration(v) * time.Second, true
		}
	}
	return v, true
}

// PlainAge is a number of seconds in the two largest units.
func PlainAge(seconds int64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", seconds)
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", seconds/60, seconds%60)
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh %02dm", seconds/3600, seconds/60%60)
	}
	return fmt.Sprintf("%dd %02dh", seconds/86400, seconds/3600%24)
}

// PlainTime is a time in RFC 3339, a dash where there is none.
func PlainTime(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return queue.Stamp(*t, time.RFC3339)
}

// PlainMillis is milliseconds that may not be known.
func PlainMillis(ms *float64) string { return queue.Choose(ms == nil, "-", plain("_ms", orZero(ms))) }

// PlainRatio is how many times as much something is.
func PlainRatio(ratio float64) string { return plain("ratio", ratio) + "×" }

// PlainBound is a count that may go on.
func PlainBound(n int64, bound bool) string {
	return queue.Choose(bound, "≥", "") + plain("", n)
}

// plainID is an id that may be absent.
func plainID(id int64) string {
	return queue.Choose(id == 0, "-", strconv.FormatInt(id, 10))
}

// plainEvery is a narrowing of a rule, in words where it narrows nothing.
func plainEvery(t queue.Text) string {
	return cmp.Or(t.String(), "(every)")
}

// OnOff is a switch in a word.
func OnOff(on bool) string {
	return queue.Choose(on, "enabled", "disabled")
}

// PlainHolder names the transaction that holds a cursor.
func PlainHolder(h *queue.Held) string {
	if h == nil {
		return ""
	}
	pid := "" // a prepared transaction has none
	if h.Pid != nil {
		pid = "pid " + plain("", *h.Pid)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s, open %s", pid, h.Program, h.User, PlainAge(h.AgeSeconds)))
}
