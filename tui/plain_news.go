package tui

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/qtop/qtop/views"
)

const (
	// newsHold is how long nothing more is said of a condition after a line about it. It
	// doubles while the condition keeps changing, up to newsHoldMost.
	newsHold     = 5 * time.Second
	newsHoldMost = 5 * time.Minute
	// newsForget is when a condition that has ended is forgotten, so that it is new again.
	newsForget = 15 * time.Minute
)

// plainNews decides which lines of --accessible are printed: what is new at once, a change
// of it when it has not just been said, and what toggles ever more seldom, with the number
// of its changes.
type plainNews map[string]*spoken

// spoken is what was said of a condition, and how it is now.
type spoken struct {
	said, now string // states; "" = it does not hold
	line      views.PlainLine
	at        time.Time // of the last line
	hold      time.Duration
	changes   int // since then
}

// of returns what to say at a time, in the order of the lines; what has ended comes first.
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

// say returns the line about a condition whose state is now this one, if there is one to print.
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
