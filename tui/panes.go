package tui

// This file is the list of panes. Each is declared in a file of its own.

import "github.com/qtop/qtop/pgclient/queue"

func declared() []pane {
	return []pane{
		overviewPane(), healthPane(), alertsPane(), executorsPane(), deadPane(), operationsPane(), webhooksPane(), queuesPane(),
		schedulerPane(), flagsPane(), subscriptionsPane(), notificationsPane(), hostPane(), auditPane(),
	}
}

// newPanes are the panes with their own levels open.
func newPanes() map[queue.PaneID]*pane {
	panes := map[queue.PaneID]*pane{}
	for _, p := range declared() {
		p.begin()
		panes[p.id] = &p
	}
	return panes
}

// home is the pane that esc leads back to in the end.
func home() queue.PaneID { return queue.Panes()[0].ID }

// titled is the registry's entry of a pane.
func titled(id queue.PaneID) queue.Pane {
	for _, p := range queue.Panes() {
		if p.ID == id {
			return p
		}
	}
	return queue.Pane{ID: id, Title: string(id)}
}
