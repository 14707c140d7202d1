package tui

import (
	"cmp"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// schedulerPane returns pane 9: the tick workers, and the scheduler mode
// (whether hosts, pg_cron or both run them).
func schedulerPane() pane {
	tick := func(at scene) (queue.TickWorker, bool) { return tickNamed(at.snap, at.subject()) }
	worker := rowTarget(tick, func(t queue.TickWorker) string { return t.Name.String() }, "P needs a tick worker under the cursor")
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneScheduler, Keys: "9", Title: "Scheduler", Short: "Sch",
			From: "v_queue_scheduler_status",
			Help: "tick workers with interval, last run and result; scheduler mode; tick now, interval, pause",
		},
		badge:  views.SchedulerBadge,
		source: func(at scene) views.Source { return snapshotSource(at, views.Scheduler(at.snap)) },
		enter:  func(at scene, i int) level { return schedulerLevel(at.level.grid.src.ID(i)) },
		acts: acts{
			targets: map[queue.ActionID]target{
				queue.ActTick: func(at scene, req *queue.Request) string {
					if _, ok := tick(at); !ok {
						return at.noRow("T needs a tick worker under the cursor")
					}
					return tickTarget(at, req)
				},
				queue.ActTickPause: worker, queue.ActTickResume: worker,
				queue.ActFlagSet: setFlag(func(at scene) string {
					_, ok := tick(at)
					return queue.Choose(ok, queue.TickInterval(at.subject()), at.subject())
				}),
			},
			usesSecond: func(at scene) bool {
				t, ok := tick(at)
				return ok && t.IntervalSeconds == 0
			},
		},
	}
}

// schedulerLevel returns the page of a tick worker with the history of its
// interval or, for the row of the scheduler mode, the page with the jobs of
// pg_cron.
func schedulerLevel(id string) level {
	l := level{id: id, title: id, rowBelow: true, list: listOf(queue.ListFlagHistory, queue.TickInterval(id))}
	if id == queue.SchedulerMode {
		l.list, l.rowBelow = listOf(queue.ListCron, ""), false
	}
	l.page = rowPage(id, func(at scene, i int) views.Page {
		if i >= len(at.snap.Ticks) {
			return views.ModePage(at.snap, queue.Of[*queue.Cron](at.level.list.page), at.env, at.size.W)
		}
		return views.TickPage(at.snap.Ticks[i], at.snap, loaded(at.level, queue.Of[[]queue.AuditEntry](at.level.list.page)), at.env, at.size.W)
	})
	return l
}

// tickNamed returns the tick worker of this name.
func tickNamed(snap *queue.Snapshot, name string) (queue.TickWorker, bool) {
	return queue.Find(snap.OrEmpty().Ticks, func(t queue.TickWorker) bool { return t.Name.String() == name })
}

// tickTarget fills in the target of T (run a tick worker now): the tick worker
// of the pane, else the one that the row under the cursor is about, else the
// first one whose name contains the row's id. A row about something else is refused.
func tickTarget(at scene, req *queue.Request) string {
	names, row := tickWorkers(at.snap), cmp.Or(at.pane.tickWorker, at.subject())
	switch i := slices.IndexFunc(names, func(n string) bool { return strings.Contains(n, row) }); {
	case row == "":
		return at.noRow("there is no loop of this process, and so no tick worker, under the cursor; T in Scheduler (9) runs any")
	case at.pane.tickWorker != "", slices.Contains(names, row):
	case i >= 0:
		row = names[i]
	case len(names) > 0:
		return at.noRow("there is no tick worker " + row + "; T in Scheduler (9) runs others")
	}
	req.Args["worker"] = row
	return ""
}

func tickWorkers(snap *queue.Snapshot) []string {
	var names []string
	for _, t := range snap.OrEmpty().Ticks {
		names = append(names, t.Name.String())
	}
	return names
}
