package tui

import (
	"cmp"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// schedulerPane is pane 9, and the tick workers wherever a row means one: what T, E and
// P work on there.
func schedulerPane() pane {
	tick := func(at scene) (queue.TickWorker, bool) { return tickNamed(at.pic, at.subject()) }
	worker := on(tick, func(t queue.TickWorker) string { return t.Name.String() }, "P pauses a worker; there is none under the cursor")
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneScheduler, Keys: "9", Title: "Scheduler", Short: "Sch",
			From: "v_queue_scheduler_status",
			Help: "tick workers with cadence, last run and result, who ticks; tick now, interval, pause",
		},
		badge:  views.SchedulerBadge,
		source: func(at scene) views.Source { return pictured(at, views.Scheduler(at.pic)) },
		enter:  func(at scene, i int) level { return schedulerLevel(at.level.grid.src.ID(i)) },
		acts: acts{
			targets: map[queue.ActionID]target{
				queue.ActTick: func(at scene, req *queue.Request) string {
					if _, ok := tick(at); !ok {
						return at.noRow("T ticks a worker; there is none under the cursor")
					}
					return tickMeant(at, req)
				},
				queue.ActTickPause: worker, queue.ActTickResume: worker,
				queue.ActFlagSet: setFlag(func(at scene) string {
					_, ok := tick(at)
					return queue.Choose(ok, queue.TickInterval(at.subject()), at.subject())
				}),
			},
			second: func(at scene) bool {
				t, ok := tick(at)
				return ok && t.IntervalSeconds == 0
			},
		},
	}
}

// schedulerLevel is the page of a tick worker with the changes of its interval, or
// of who ticks, with what pg_cron has.
func schedulerLevel(id string) level {
	l := level{id: id, title: id, list: reads(queue.ListFlagHistory, queue.TickInterval(id))}
	if id == queue.SchedulerMode {
		l.list = reads(queue.ListCron, "")
	}
	l.page = rowPage(id, func(at scene, i int) views.Page {
		if i >= len(at.pic.Ticks) {
			return views.ModePage(at.pic, queue.Of[*queue.Cron](at.level.list.page), at.env, at.size.W)
		}
		return views.TickPage(at.pic.Ticks[i], at.pic, known(at.level, queue.Of[[]queue.AuditEntry](at.level.list.page)), at.env, at.size.W)
	})
	return l
}

// tickNamed is the tick worker of this name.
func tickNamed(pic *queue.Snapshot, name string) (queue.TickWorker, bool) {
	return queue.Find(pic.OrEmpty().Ticks, func(t queue.TickWorker) bool { return t.Name.String() == name })
}

// tickMeant starts the form of T with the tick worker that the row under the
// cursor seems to mean.
func tickMeant(at scene, req *queue.Request) string {
	names, row := tickWorkers(at.pic), cmp.Or(at.pane.tick, at.subject())
	meant := row
	switch i := slices.IndexFunc(names, func(n string) bool { return row != "" && strings.Contains(n, row) }); {
	case slices.Contains(names, row):
	case i >= 0:
		meant = names[i]
	case len(names) > 0:
		meant = names[0]
	}
	req.Args["worker"] = meant
	return ""
}

func tickWorkers(pic *queue.Snapshot) []string {
	var names []string
	for _, t := range pic.OrEmpty().Ticks {
		names = append(names, t.Name.String())
	}
	return names
}
