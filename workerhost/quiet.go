package workerhost

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// sayAgain is how often a host repeats a warning whose error has not changed.
const sayAgain = time.Minute

// quietMost is how many different warnings are kept in mind.
const quietMost = 200

// quiet is a log that says a warning with an error once, and again once a minute with
// how often it was left out meanwhile: beside a database that is away, or a pooler that
// refuses, each loop meets the same error several times a second.
type quiet struct {
	slog.Handler
	said *said
}

type said struct {
	mu  sync.Mutex
	all map[string]*repeat
}

type repeat struct {
	at   time.Time // it was written last
	left int       // out since then
}

// quieten wraps a log.
func quieten(log *slog.Logger) *slog.Logger {
	return slog.New(quiet{log.Handler(), &said{all: map[string]*repeat{}}})
}

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	text := ""
	if r.Level == slog.LevelWarn {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "error" {
				text = a.Value.String()
			}
			return text == ""
		})
	}
	if text == "" {
		return q.Handler.Handle(ctx, r)
	}
	left, again := q.said.left(strings.Map(unnumbered, r.Message+" "+text), r.Time)
	if again {
		return nil
	}
	if left > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("repeated", left))
	}
	return q.Handler.Handle(ctx, r)
}

// unnumbered makes digits alike: the port of this end is another one each time.
func unnumbered(r rune) rune {
	if r >= '0' && r <= '9' {
		return '#'
	}
	return r
}

// left returns n, how often a warning was left out since it was last written, and again,
// whether it is left out now.
func (s *said) left(what string, now time.Time) (n int, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.all[what]
	if known != nil && now.Sub(known.at) < sayAgain {
		known.left++
		return 0, true
	}
	if known != nil {
		n = known.left
	} else if len(s.all) >= quietMost {
		clear(s.all)
	}
	s.all[what] = &repeat{at: now}
	return n, false
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quiet{q.Handler.WithAttrs(attrs), q.said}
}

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name), q.said} }
