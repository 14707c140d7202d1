package tui

// This file is pane 9 and the tick workers wherever they are named: what T, E and
// P work on there.

import (
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// ticked is the tick worker of this name.
func (m *root) ticked(name string) (queue.TickWorker, bool) {
	if m.feed.picture != nil && name != "" {
		if i := slices.IndexFunc(m.feed.picture.Ticks, func(t queue.TickWorker) bool { return t.Name.String() == name }); i >= 0 {
			return m.feed.picture.Ticks[i], true
		}
	}
	return queue.TickWorker{}, false
}

// schedulerList is what a page of pane 9 reads: the changes of an interval, or
// what pg_cron has.
func schedulerList(row string) queue.Query {
	if row == queue.SchedulerMode {
		return queue.Query{Kind: queue.ListCron}
	}
	return queue.Query{Kind: queue.ListFlagHistory, ID: queue.TickInterval(row)}
}

func (m *root) schedulerPage(l *level, i int, e views.Env, w int) views.Page {
	pic := m.feed.picture
	if i >= len(pic.Ticks) {
		return views.ModePage(pic, queue.Of[*queue.Cron](l.list.page), e, w)
	}
	return views.TickPage(pic.Ticks[i], pic, known(l.list, queue.Of[[]queue.AuditEntry](l.list.page)), e, w)
}

// tickWorker is the tick worker that the row under the cursor seems to mean.
func (m *root) tickWorker() string {
	names := m.tickWorkers()
	at := m.subject()
	if m.pane().id == queue.PaneNotify {
		at = "iu_notification_worker"
	}
	if slices.Contains(names, at) {
		return at
	}
	for _, n := range names {
		if at != "" && strings.Contains(n, at) {
			return n
		}
	}
	if len(names) > 0 {
		return names[0]
	}
	return at
}

func (m *root) tickWorkers() []string {
	var names []string
	if m.feed.picture != nil {
		for _, t := range m.feed.picture.Ticks {
			names = append(names, t.Name.String())
		}
	}
	return names
}
