package views

// How a value is shown by its type: shortened on the screen, exact in the
// table of a verb.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// shown returns the value of a JSON member as the screen shows it. The ending
// of the member's name determines the unit, such as _ms.
func (e Env) shown(name string, v any) string {
	switch v := v.(type) {
	case queue.Text:
		return v.String()
	case string: // states of qtop's own schema; another schema may have any text here
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

// ago returns how long ago a time was.
func ago(e Env, v any) string {
	if t, ok := v.(time.Time); ok && !t.IsZero() {
		return e.Ago(t)
	}
	return e.Theme.G.Dash
}

// orDashed returns a text or number, and a dash for an empty text or 0.
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

// stamped returns a time to the second.
func stamped(e Env, v any) string {
	if t, ok := v.(time.Time); ok {
		return e.Stamp(t)
	}
	return e.Theme.G.Dash
}

// digits returns a number that is a name, without thousands separators.
func digits(_ Env, v any) string { return fmt.Sprint(v) }

// everything returns the domain or kind of a subscription; if it is empty, the
// word that means all.
func everything(_ Env, v any) string {
	if t, ok := v.(queue.Text); ok {
		return orEvery(t)
	}
	return fmt.Sprint(v)
}

// plain returns the value of a JSON member for the table of a verb: times in RFC 3339, a dash for
// null.
func plain(name string, v any) string {
	switch v := v.(type) {
	case queue.Text:
		return v.String()
	case string: // states of qtop's own schema; another schema may have any text here
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

// compared returns the value of a JSON member as filters compare it. ok is
// false for null, which no filter matches.
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

// PlainAge returns a number of seconds in its two largest units.
func PlainAge(seconds int64) string {
	return queue.Span(seconds)
}

// PlainTime returns a time in RFC 3339; a dash for nil.
func PlainTime(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return queue.Stamp(*t, time.RFC3339)
}

// PlainMillis returns milliseconds; a dash for nil.
func PlainMillis(ms *float64) string { return queue.Choose(ms == nil, "-", plain("_ms", orZero(ms))) }

// PlainRatio returns a ratio with ×.
func PlainRatio(ratio float64) string {
	return queue.Choose(ratio < 0.1, "<0.1", plain("ratio", ratio)) + "×"
}

// PlainBound returns a count, marked with ≥ if bound says that counting
// stopped there.
func PlainBound(n int64, bound bool) string {
	return queue.Choose(bound, "≥", "") + plain("", n)
}

// plainID returns an id; a dash for 0.
func plainID(id int64) string {
	return queue.Choose(id == 0, "-", strconv.FormatInt(id, 10))
}

// plainEvery returns the domain or kind of a subscription; if it is empty, the
// word that means all.
func plainEvery(t queue.Text) string {
	return cmp.Or(t.String(), "(every)")
}

// OnOff returns "on" or "off".
func OnOff(on bool) string {
	return queue.Choose(on, "enabled", "disabled")
}

// PlainHolder describes the open transaction that delays the routing of
// events.
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
