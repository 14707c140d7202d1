package queue

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// maxDuration keeps "now minus a duration" inside the range of a timestamp.
const maxDuration = 100 * 365 * 24 * time.Hour

// maxDigits is the largest number of digits in a number; an int64 has at most 19.
const maxDigits = 40

// parseNumber parses plain decimals. It refuses exponents, with which an exact comparison would be
// expensive.
func parseNumber(s string) (Value, bool) {
	s = strings.TrimPrefix(s, "+")
	digits := strings.TrimPrefix(s, "-")
	whole, frac, dot := strings.Cut(digits, ".")
	if !isDigits(whole) || (dot && !isDigits(frac)) || len(s) > maxDigits {
		return Value{}, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return Value{Raw: s, Number: n}, err == nil
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// durationUnit returns the unit at the start of s, and its name; ms is tried before m.
func durationUnit(s string) (time.Duration, string) {
	for _, u := range [...]struct {
		name string
		len  time.Duration
	}{
		{"ms", time.Millisecond}, {"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour},
		{"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	} {
		if rest, ok := strings.CutPrefix(s, u.name); ok {
			return u.len, rest
		}
	}
	return 0, s
}

// parseDuration parses 90s, 2h30m, 3d, 1.5h: each unit once, the largest first. 30m1h is a mistake.
func parseDuration(s string) (time.Duration, bool) {
	var total, last time.Duration
	if s == "" {
		return 0, false
	}
	for s != "" {
		n := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
		if n <= 0 || n > maxDigits {
			return 0, false
		}
		v, ok := parseNumber(s[:n])
		if !ok {
			return 0, false
		}
		var unit time.Duration
		unit, s = durationUnit(s[n:])
		part := v.Number * float64(unit)
		if unit == 0 || last != 0 && unit >= last || part > float64(maxDuration) {
			return 0, false
		}
		last = unit
		total += time.Duration(math.Round(part/1e3)) * time.Microsecond
		if total > maxDuration {
			return 0, false
		}
	}
	return total, true
}

// DurationText returns a duration in the canonical form of what Duration reads: largest unit first, each unit at
// most once, such as 2h30m, 1d, 1.5s, 250ms or -1h. It leaves out what is below a microsecond, unless that is all.
func DurationText(d time.Duration) string {
	switch {
	case d < 0 && d != math.MinInt64:
		return "-" + DurationText(-d)
	case d < time.Microsecond:
		return d.String()
	case d < time.Second && d%time.Millisecond == 0:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
	var b strings.Builder
	for _, u := range []struct {
		name string
		len  time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if n := d / u.len; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10) + u.name)
			d -= n * u.len
		}
	}
	if d > 0 {
		us := strconv.FormatInt(int64(d/time.Microsecond)+1_000_000_000, 10)[1:] // nine digits: three of seconds, six of microseconds
		sec, frac := strings.TrimLeft(us[:3], "0"), strings.TrimRight(us[3:], "0")
		if sec == "" {
			sec = "0"
		}
		if frac != "" {
			sec += "." + frac
		}
		b.WriteString(sec + "s")
	}
	return b.String()
}

// parseTime parses -30m, 02:00, and dates with or without a time and a zone.
func parseTime(s string, loc *time.Location) (Value, bool) {
	if ago, ok := strings.CutPrefix(s, "-"); ok {
		d, ok := parseDuration(ago)
		return Value{Raw: "-" + DurationText(d), Time: TimeRef{Kind: TimeAgo, Ago: d}}, ok
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if len(s) != len(layout) {
			continue
		}
		if at, err := time.Parse(layout, s); err == nil {
			// A clock time is written as "02:00" instead of "02:00:00"; only one ":00" is removed.
			clock := at.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC))
			return Value{Raw: strings.TrimSuffix(at.Format("15:04:05"), ":00"), Time: TimeRef{Kind: TimeClock, Clock: clock, Loc: loc}}, true
		}
	}
	s = strings.Replace(s, " ", "T", 1)
	for _, layout := range []string{
		"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05", // these layouts also accept a fraction of the second
		"2006-01-02T15:04Z07:00", "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04Z07", "2006-01-02T15:04:05Z07",
	} {
		at, err := time.ParseInLocation(layout, s, loc)
		// In these years every zone's form has a year of four digits.
		if err == nil && at.Year() > 1900 && at.Year() < 3000 {
			return absoluteValue(at), true
		}
	}
	return Value{}, false
}

func absoluteValue(at time.Time) Value {
	at = at.UTC().Truncate(time.Microsecond)
	return Value{Raw: at.Format(time.RFC3339Nano), Time: TimeRef{Kind: TimeAbsolute, At: at}}
}
