package tui

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/qtop/qtop/views"
)

const (
	// newsHold is the pause after a printed line during which no further line
	// about the same condition is printed. Each time the condition changes
	// within the pause, the next pause is twice as long, up to newsHoldMost.
	newsHold     = 5 * time.Second
	newsHoldMost = 5 * time.Minute
	// newsForget is how long plainNews remembers an ended condition after its
	// last line. Afterwards the same condition counts as new.
	newsForget = 15 * time.Minute
)

// plainNews decides which lines the console of --accessible prints. A new
// condition is printed at once, a changed one if its last line is old enough.
// A condition that keeps beginning and ending is printed less and less often,
// with the number of its changes. The key of the map is PlainLine.Key.
type plainNews map[string]*spoken

// spoken is one condition: its state when a line about it was last printed,
// and its state now.
type spoken struct {
	said, now string // last printed and current state; "" = the condition has ended
	line      views.PlainLine
	at        time.Time // when the last line was printed
	hold      time.Duration
	changes   int // changes of the state since that line
}

// of returns the lines to print now, in the order of lines; those of ended
// conditions come first.
func (n plainNews) of(lines []views.PlainLine, now time.Time) []string {
	var out []string
	here := make(map[string]bool, len(lines))
	for _, l := range lines {
		here[l.Key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(n)) {
		if s := n[key]; !here[key] {
			if s.said == "" && now.Sub(s.at) > newsForget {
				delete(n, key)
			} else if text, ok := s.say(s.line, "", now); ok && s.line.Over != "" {
				out = append(out, text)
			}
		}
	}
	for _, l := range lines {
		if l.Key == "" {
			continue
		}
		state := "on " + l.State
		s, known := n[l.Key]
		if !known {
			n[l.Key] = &spoken{said: state, now: state, line: l, at: now, hold: newsHold}
			out = append(out, l.Text)
			continue
		}
		s.line = l
		if text, ok := s.say(l, state, now); ok {
			out = append(out, text)
		}
	}
	return out
}

// say records the current state of a condition. It returns the line to print,
// or false if none is due.
func (s *spoken) say(l views.PlainLine, state string, now time.Time) (string, bool) {
	if state != s.now {
		s.now = state
		s.changes++
	}
	switch calm := now.Sub(s.at); {
	case s.changes == 0 && calm >= 4*s.hold:
		s.hold = newsHold
		return "", false
	case calm < s.hold, s.said == state && s.changes < 4:
		return "", false
	}
	text := l.Text
	if state == "" {
		text = "over: " + l.Over
	}
	if s.changes > 1 {
		text += fmt.Sprintf(", changed %d times in %s", s.changes, views.Span(now.Sub(s.at).Round(time.Second)))
	}
	if s.changes > 1 || now.Sub(s.at) < 4*s.hold {
		s.hold = min(2*s.hold, newsHoldMost)
	}
	s.said, s.at, s.changes = state, now, 0
	return text, true
}
