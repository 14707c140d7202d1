package views

// Formats numbers and times. A number is exact (4,812), shortened if there is little room (4.8k),
// or marked ≥ if counting stopped at a limit. Ages are relative to the snapshot.

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Count returns n with thousands separators.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	head := 0
	if n < 0 {
		head = 1
	}
	for i := len(s) - 3; i > head; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// counted returns a count. bound is true if counting stopped at that number;
// then it begins with ≥.
func (e Env) counted(n int64, bound bool) string {
	return queue.Choose(bound, e.Theme.G.AtLeast, "") + Count(n)
}

// Age returns a number of seconds in its two largest units.
func Age(seconds int64) string {
	if seconds < 0 {
		return "0s" // negative ages occur, because the clocks of two transactions can differ
	}
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%dm", seconds/60)
	case seconds < 100*3600:
		return fmt.Sprintf("%dh %02dm", seconds/3600, seconds/60%60)
	case seconds < 1000*86400:
		return fmt.Sprintf("%dd %02dh", seconds/86400, seconds/3600%24)
	default:
		return fmt.Sprintf("%dy %03dd", seconds/(365*86400), seconds/86400%365)
	}
}

// Times returns a ratio with the sign ×, such as 3×.
func (e Env) Times(ratio float64) string {
	x := e.Theme.G.Times
	switch {
	case math.IsNaN(ratio) || math.IsInf(ratio, 0) || ratio <= 0:
		return e.Theme.G.Dash
	case ratio < 0.1:
		return "<0.1" + x
	case ratio < 10:
		// Rounded down: 9.96 is still a warning and must not be shown as 10.
		return strconv.FormatFloat(math.Floor(ratio*10)/10, 'f', 1, 64) + x
	default:
		return Count(int64(min(ratio, 1e15))) + x
	}
}

// Rate returns a rate per second with its significant digits.
func Rate(f float64) string {
	switch {
	case math.IsNaN(f) || f <= 0:
		return "0.0"
	case f < 0.1:
		return "<0.1"
	case f < 100:
		return strconv.FormatFloat(f, 'f', 1, 64)
	default:
		return Count(int64(math.Min(f, 1e15)))
	}
}

// Clock returns a time, with its date if it is not today.
func (e Env) Clock(t time.Time) string {
	if word := queue.Uncalendared(t); word != "" {
		return word
	}
	if e.Exact {
		return PlainTime(&t)
	}
	t, now := t.In(e.loc()), e.Now.In(e.loc())
	switch {
	case t.IsZero() || t.Year() < 1970:
		return e.Theme.G.Dash
	case t.YearDay() == now.YearDay() && t.Year() == now.Year():
		return t.Format("15:04")
	case t.Year() == now.Year() || now.Sub(t).Abs() < 30*24*time.Hour: // around the turn of the year the time says more than the year
		return t.Format("01-02 15:04")
	default:
		return t.Format("2006-01-02")
	}
}

// Second returns a time to the second, with its date if it is not today, but without its year.
func (e Env) Second(t time.Time) string {
	if word := queue.Uncalendared(t); word != "" {
		return word
	}
	t, now := t.In(e.loc()), e.Now.In(e.loc())
	switch {
	case t.IsZero():
		return e.Theme.G.Dash
	case t.YearDay() == now.YearDay() && t.Year() == now.Year():
		return t.Format("15:04:05")
	}
	return t.Format("01-02 15:04:05")
}

// Stamp returns a date and time to the second, with its zone.
func (e Env) Stamp(t time.Time) string {
	if t.IsZero() {
		return e.Theme.G.Dash
	}
	if word := queue.Uncalendared(t); word != "" {
		return word
	}
	return t.In(e.loc()).Format("2006-01-02 15:04:05 ") + Zone(t.In(e.loc()))
}

// Zone returns the zone of t in short form: UTC, +02, +0530.
func Zone(t time.Time) string {
	name, offset := t.Zone()
	switch {
	case offset == 0 && (name == "UTC" || name == ""):
		return "UTC"
	case offset%3600 == 0:
		return t.Format("-07")
	default:
		return t.Format("-0700")
	}
}

// since returns a time and how long ago it was; "" for nil.
func (e Env) since(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return e.Stamp(*t) + ", " + e.Ago(*t) + " ago"
}

// here returns e for what this process knows itself: ages then do not depend on the snapshot, which
// does not change while the database is gone, the console is paused, or a stored snapshot is shown.
func (e Env) here() Env {
	if !e.Here.IsZero() {
		e.Now = e.Here
	}
	return e
}

// Ago returns how long before the snapshot t was.
func (e Env) Ago(t time.Time) string {
	if t.IsZero() {
		return e.Theme.G.Dash
	}
	return Age(int64(e.Now.Sub(t).Seconds()))
}

// Until returns how long after the snapshot t is; "now" if it is not later.
func (e Env) Until(t time.Time) string {
	d := t.Sub(e.Now)
	if d <= 0 {
		return "now"
	}
	if d < time.Minute {
		return Age(int64(d.Seconds()))
	}
	return Age(int64(math.Ceil(d.Minutes())) * 60)
}

// In returns when a later time comes: "in 9m", or "now" if it is not later.
func (e Env) In(t time.Time) string {
	return queue.Choose(t.After(e.Now), "in ", "") + e.Until(t)
}

// Left returns the time left until t: "9m left", or "over".
func (e Env) Left(t time.Time) string {
	return queue.Choose(t.After(e.Now), e.Until(t)+" left", "over")
}

// Span returns a duration in words.
func Span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second && d%time.Second != 0:
		return fmt.Sprintf("%.1fs", d.Seconds())
	default:
		return Age(int64(d.Seconds()))
	}
}

// Millis returns milliseconds with their unit.
func Millis(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f ms", ms)
	}
}

func (e Env) loc() *time.Location {
	if e.Loc == nil {
		return time.UTC
	}
	return e.Loc
}

// Plural returns n, with thousands separators, and the singular or plural word.
func Plural(n int64, one, many string) string {
	return Count(n) + " " + queue.Choose(n == 1, one, many)
}

// Plain returns a row id for display: blanks instead of the internal separators.
func Plain(id string) string { return strings.TrimSpace(strings.ReplaceAll(id, "\x00", " ")) }
