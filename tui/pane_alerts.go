package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

const noAlert = "there is no alert under the cursor"

// alertsPane returns pane 3: the alerts and who acknowledged them.
func alertsPane() pane {
	alert := func(at scene) (queue.Alert, bool) { return alertBy(at.snap, at.subject()) }
	none := func(at scene) string { return at.noRow(noAlert) }
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneAlerts, Keys: "3", Title: "Alerts",
			From: "v_queue_alert",
			Help: "silences and other alerts with their owners; acknowledge",
		},
		badge:  views.AlertsBadge,
		source: func(at scene) views.Source { return snapshotSource(at, views.Alerts(at.snap)) },
		enter: func(at scene, i int) level {
			id := at.level.grid.src.ID(i)
			return level{id: id, title: id, rowBelow: true, list: listOf(queue.ListAlertHistory, id), page: rowPage(id, func(at scene, i int) views.Page {
				return views.AlertPage(queue.Causes(at.snap.Alerts)[i], at.snap, loaded(at.level, queue.Of[[]queue.AlertAck](at.level.list.page)), at.env, at.size.W)
			})}
		},
		acts: acts{
			targets: map[queue.ActionID]target{
				queue.ActAck:             acknowledge(alert, none),
				queue.ActQuarantineRetry: rowTarget(inQuarantine(alert), func(a queue.Alert) string { return a.Key.String() }, "the alert under the cursor is not about a row in quarantine"),
				queue.ActUnack:           rowTarget(alert, func(a queue.Alert) string { return a.Key.String() }, noAlert),
			},
			usesSecond: func(at scene) bool { // key A acknowledges an open alert, and withdraws the acknowledgement of another
				al, ok := alert(at)
				return ok && al.State == "acked"
			},
		},
	}
}

// inQuarantine returns a function that finds the same alert as the given one,
// but only if it is about a row in quarantine.
func inQuarantine(alert func(at scene) (queue.Alert, bool)) func(at scene) (queue.Alert, bool) {
	return func(at scene) (queue.Alert, bool) {
		a, ok := alert(at)
		return a, ok && a.Kind == queue.AlertQuarantine
	}
}

// acknowledge returns the target function of key A in the tables that show
// alerts: the alert that belongs to the row under the cursor, unless somebody
// has acknowledged it. If the row has no alert, none returns the reason.
func acknowledge(alert func(at scene) (queue.Alert, bool), none func(at scene) string) target {
	return func(at scene, req *queue.Request) string {
		al, ok := alert(at)
		switch {
		case !ok:
			return none(at)
		case al.State == "acked":
			return al.Subject.String() + " is acknowledged by " + al.AckedBy.String() + "; A in Alerts (3) withdraws the acknowledgement"
		}
		req.Targets = []string{al.Key.String()}
		return ""
	}
}

func alertBy(snap *queue.Snapshot, key string) (queue.Alert, bool) {
	return queue.Find(snap.OrEmpty().Alerts, func(a queue.Alert) bool { return key != "" && a.Key.String() == key })
}
