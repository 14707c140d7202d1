package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// healthPane is pane 2: every source and row of v_queue_health.
func healthPane() pane {
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneHealth, Keys: "2", Title: "Health",
			From: "v_queue_health",
			Help: "every source and row, stale first",
		},
		source: func(at scene) views.Source { return pictured(at, views.Health(at.pic)) },
		enter: func(at scene, i int) level {
			id := at.level.grid.src.ID(i)
			return level{id: id, title: id, page: rowPage(id, func(at scene, i int) views.Page {
				return views.HealthPage(at.pic, at.pic.Health[i], at.env, at.size.W)
			})}
		},
		means: func(src views.Source, i int, id string) bool { // a queue is named by its subject there
			v, _ := src.Field(i, "subject")
			return v != "" && views.Names(id, v)
		},
	}
}
