package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// declared lists the panes in menu order. Each is declared in a pane_*.go file.
func declared() []pane {
	return []pane{
		overviewPane(), healthPane(), alertsPane(), executorsPane(), deadPane(), operationsPane(), webhooksPane(), queuesPane(),
		schedulerPane(), flagsPane(), subscriptionsPane(), notificationsPane(), hostPane(), activityPane(), auditPane(),
	}
}

// Panes returns id, key and title of each pane, in menu order.
func Panes() []queue.Pane {
	var list []queue.Pane
	for _, p := range declared() {
		list = append(list, p.Pane)
	}
	return list
}

// newPanes returns every pane with its first level open.
func newPanes() map[queue.PaneID]*pane {
	panes := map[queue.PaneID]*pane{}
	for _, p := range declared() {
		p.begin()
		panes[p.ID] = &p
	}
	return panes
}

// home returns the id of the first pane, to which esc finally leads.
func home() queue.PaneID { return overviewPane().ID }

func (m *deck) tabs() []views.Tab {
	var tabs []views.Tab
	for _, p := range declared() {
		tabs = append(tabs, views.NewTab(p.Pane, p.ID == m.at, p.badge, m.feed.snapshot))
	}
	return tabs
}
