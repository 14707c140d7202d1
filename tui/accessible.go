package tui

// This file is --accessible: plain lines on change, for screen readers and for
// terminals that cannot do more. It prints what the Overview shows and acts on
// nothing; the headless verbs act.

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

// accessible prints until ctx ends. A line is printed once, when it becomes
// true, and once more with "over:" when it no longer is.
func accessible(ctx context.Context, s Store, o Options, w io.Writer) error {
	e := views.Env{Theme: theme.New(theme.Options{ASCII: true}), Loc: time.Local}
	if o.UTC {
		e.Loc = time.UTC
	}
	say := func(format string, a ...any) error {
		_, err := fmt.Fprintf(w, "%s "+format+"\n", append([]any{o.Now().In(e.Loc).Format("15:04:05")}, a...)...)
		return err
	}
	if err := say("qtop %s, plain lines; ctrl+c ends; actions: qtop help", theme.Safe(o.Profile)); err != nil {
		return err
	}
	var before []string
	failed := ""
	tick := time.NewTicker(max(o.Refresh, time.Second))
	defer tick.Stop()
	for {
		p, err := picture(ctx, s)
		if ctx.Err() != nil {
			return nil
		}
		if f := why(err); f != failed {
			failed = f
			line := "database: " + f
			if f == "" {
				line = "database: back"
			}
			if err := say("%s", line); err != nil {
				return err
			}
		}
		if err == nil {
			e.Now = p.TakenAt
			now := views.Plainly(&p, e)
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

func picture(ctx context.Context, s Store) (queue.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, pictureDeadline)
	defer cancel()
	return s.Snapshot(ctx)
}

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
