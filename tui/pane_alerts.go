package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

const noAlert = "there is no alert under the cursor"

// alertsPane is pane 3, and acknowledging wherever an alert is under the cursor.
func alertsPane() pane {
	alert := func(at scene) (queue.Alert, bool) { return alertBy(at.pic, at.subject()) }
	none := func(at scene) string { return at.noRow(noAlert) }
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneAlerts, Keys: "3", Title: "Alerts",
			From: "v_queue_alert",
			Help: "silences with who has them; acknowledge",
		},
		badge:  views.AlertsBadge,
		source: func(at scene) views.Source { return pictured(at, views.Alerts(at.pic)) },
		enter: func(at scene, i int) level {
			id := at.level.grid.src.ID(i)
			return level{id: id, title: id, list: reads(queue.ListAlertHistory, id), page: rowPage(id, func(at scene, i int) views.Page {
				return views.AlertPage(queue.Causes(at.pic.Alerts)[i], at.pic.Alerts, known(at.level, queue.Of[[]queue.AlertAck](at.level.list.page)), at.env, at.size.W)
			})}
		},
		acts: acts{
			targets: map[queue.ActionID]target{
				queue.ActAck:             acknowledge(alert, none),
				queue.ActQuarantineRetry: on(aside(alert), func(a queue.Alert) string { return a.Key.String() }, "the alert under the cursor names no row that is set aside"),
				queue.ActUnack:           on(alert, func(a queue.Alert) string { return a.Key.String() }, noAlert),
			},
			second: func(at scene) bool { // A takes an open alert and gives up one that is had
				al, ok := alert(at)
				return ok && al.State == "acked"
			},
		},
	}
}

// aside finds an alert that names a row in quarantine.
func aside(alert func(at scene) (queue.Alert, bool)) func(at scene) (queue.Alert, bool) {
	return func(at scene) (queue.Alert, bool) {
		a, ok := alert(at)
		return a, ok && a.Kind == queue.AlertQuarantine
	}
}

// acknowledge is what A takes: the alert that a row means.
func acknowledge(alert func(at scene) (queue.Alert, bool), none func(at scene) string) target {
	return func(at scene, req *queue.Request) string {
		al, ok := alert(at)
		switch {
		case !ok:
			return none(at)
		case al.State == "acked":
			return al.Subject.String() + " is acknowledged by " + al.AckedBy.String() + "; A in Alerts (3) gives it up"
		}
		req.Targets = []string{al.Key.String()}
		return ""
	}
}

func alertBy(pic *queue.Snapshot, key string) (queue.Alert, bool) {
	return queue.Find(pic.OrEmpty().Alerts, func(a queue.Alert) bool { return key != "" && a.Key.String() == key })
}
