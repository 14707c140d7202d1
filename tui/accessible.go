package tui

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// accessible runs the console of --accessible: until ctx ends it prints plain
// lines for screen readers and simple terminals. It shows the content of the
// Overview and offers no actions; the headless verbs have them. A condition,
// such as a silent executor, gets a line when it begins, when it changes and,
// with "over:", when it ends. An action of a person gets one line. An age in a
// line is the age at the time of printing.
func accessible(ctx context.Context, s Store, o Options, w io.Writer) error {
	e := views.Env{Theme: theme.New(theme.Options{ASCII: true}), Loc: time.Local}
	if o.UTC {
		e.Loc = time.UTC
	}
	say := func(format string, a ...any) error {
		line := fmt.Sprintf("%s "+format+"\n", append([]any{o.Now().In(e.Loc).Format("15:04:05")}, a...)...)
		_, err := io.WriteString(w, queue.Choose(o.ASCII, theme.ASCIIText(line), theme.Spell(line)))
		return err
	}
	if err := say("%s, plain lines; ctrl+c quits; actions: qtop --help", strings.TrimSpace("qtop "+theme.Safe(o.Profile))); err != nil {
		return err
	}
	news, lines := plainNews{}, []views.PlainLine(nil)
	schedule := feed{refresh: max(o.Refresh, time.Second)}
	for {
		schedule.started = o.Now()
		p, err := takeSnapshot(ctx, s, schedule.shareable())
		schedule.took = o.Now().Sub(schedule.started)
		if ctx.Err() != nil {
			return nil
		}
		var now []views.PlainLine
		if err != nil {
			// If the snapshot cannot be read, the lines of the last one stay
			// in the list: otherwise every condition would be printed as
			// ended.
			now = append([]views.PlainLine{{Key: "database", State: why(err), Text: "DATABASE " + why(err), Over: "DATABASE cannot be read"}}, lines...)
		} else {
			e.Now = p.TakenAt
			now = views.PlainLines(&p, e)
			if _, unread := p.Missing["all"]; unread { // only the server is known, and no condition has ended
				now = append(now, slices.DeleteFunc(slices.Clone(lines), func(l views.PlainLine) bool { return l.Key == now[0].Key })...)
			} else {
				lines = now
			}
		}
		for _, line := range news.of(now, o.Now()) {
			if err := say("%s", line); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(schedule.interval() - schedule.took):
		}
	}
}

// takeSnapshot reads one snapshot, which may be one that was computed for another
// console, if that is at most maxAge old.
func takeSnapshot(ctx context.Context, s Store, maxAge time.Duration) (queue.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotDeadline)
	defer cancel()
	return s.Snapshot(ctx, maxAge)
}
