package queue

import "time"

// ParseWhen parses a time on a command line: 02:00 (the last time at which the clock in loc showed
// it), a date with or without a time and a zone, or a duration before now such as 3h or -90m.
func ParseWhen(text string, now time.Time, loc *time.Location) (time.Time, bool) {
	if d, ok := parseDuration(text); ok {
		return now.Add(-d), true
	}
	v, ok := parseTime(text, loc)
	return v.Time.Resolve(now), ok
}
