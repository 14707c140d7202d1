package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// healthPane returns pane 2: the rows of the view v_queue_health in the snapshot.
func healthPane() pane {
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneHealth, Keys: "2", Title: "Health",
			From: "v_queue_health",
			Help: "what each cursor, heartbeat, backlog and group of dead letters reports, stale first",
		},
		source: func(at scene) views.Source { return snapshotSource(at, views.Health(at.snap)) },
		enter: func(at scene, i int) level {
			id := at.level.grid.src.ID(i)
			return level{id: id, title: id, page: rowPage(id, func(at scene, i int) views.Page {
				return views.HealthPage(at.snap, at.snap.Health[i], at.env, at.size.W)
			})}
		},
		matches: func(src views.Source, i int, id string) bool { // the id in the Overview has queue and subject, that of a row here only the subject
			v, _ := src.Field(i, "subject")
			return v != "" && views.Names(id, v)
		},
	}
}
