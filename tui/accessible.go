package tui

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// accessible is the console of --accessible: plain lines for screen readers and simple
// terminals, printed until ctx ends. It shows what the Overview shows and offers no
// actions; the headless verbs do that. A line is printed once when it becomes true, and
// once more with "over:" when it no longer holds.
func accessible(ctx context.Context, s Store, o Options, w io.Writer) error {
	e := views.Env{Theme: theme.New(theme.Options{ASCII: true}), Loc: time.Local}
	if o.UTC {
		e.Loc = time.UTC
	}
	say := func(format string, a ...any) error {
		_, err := io.WriteString(w, e.Theme.Twins(fmt.Sprintf("%s "+format+"\n", append([]any{o.Now().In(e.Loc).Format("15:04:05")}, a...)...)))
		return err
	}
	if err := say("qtop %s, plain lines; ctrl+c quits; actions: qtop --help", theme.Safe(o.Profile)); err != nil {
		return err
	}
	var before []string
	failed := ""
	every := max(o.Refresh, time.Second)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		p, err := takeSnapshot(ctx, s, every)
		if ctx.Err() != nil {
			return nil
		}
		if f := why(err); f != failed {
			failed = f
			line := "database: " + f
			if f == "" {
				line = "database: connected again"
			}
			if err := say("%s", line); err != nil {
				return err
			}
		}
		if err == nil {
			e.Now = p.TakenAt
			now := views.PlainLines(&p, e)
			if err := changes(say, before, now); err != nil {
				return err
			}
			before = now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// takeSnapshot reads a snapshot for consoles that refresh at this interval.
func takeSnapshot(ctx context.Context, s Store, every time.Duration) (queue.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotDeadline)
	defer cancel()
	return s.Snapshot(ctx, feed{refresh: every}.shareable())
}

// changes prints the lines that ended and those that are new.
func changes(say func(string, ...any) error, before, now []string) error {
	for _, line := range before {
		if !slices.Contains(now, line) {
			if err := say("over: %s", line); err != nil {
				return err
			}
		}
	}
	for _, line := range now {
		if !slices.Contains(before, line) {
			if err := say("%s", line); err != nil {
				return err
			}
		}
	}
	return nil
}
