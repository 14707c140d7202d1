package workerhost

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// sayAgain is the pause after which a host repeats a warning whose error has not changed.
const sayAgain = time.Minute

// quietMost is how many different warnings a quiet log remembers.
const quietMost = 200

// quiet is a log handler that writes a warning with the same error at most
// once a minute, with the number of repetitions that it dropped. Otherwise
// each loop would log the same error several times a second while the database
// is unavailable or a pooler refuses connections.
type quiet struct {
	slog.Handler
	said *said
}

type said struct {
	mu  sync.Mutex
	all map[string]*repeat
}

type repeat struct {
	at   time.Time // when the warning was last written
	left int       // how often it was dropped since then
}

// quieten returns a log that writes to log through a quiet handler.
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

// unnumbered replaces digits, so that errors that differ only in the local port count as equal.
func unnumbered(r rune) rune {
	if r >= '0' && r <= '9' {
		return '#'
	}
	return r
}

// left counts a warning. It returns n, how often the warning was dropped since it was last
// written, and again, whether the warning must be dropped now.
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
