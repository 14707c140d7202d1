package queue

import "fmt"

// Span returns a number of seconds in its two largest units, as the verbs print durations: 12s,
// 10m 00s, 95h 00m, 5d 02h.
func Span(seconds int64) string {
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%dm %02ds", seconds/60, seconds%60)
	case seconds < 100*3600:
		return fmt.Sprintf("%dh %02dm", seconds/3600, seconds/60%60)
	}
	return fmt.Sprintf("%dd %02dh", seconds/86400, seconds/3600%24)
}
