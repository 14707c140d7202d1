package tui

// This file is the list of panes, in menu order. Each is declared in a file of its own.

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func declared() []pane {
	return []pane{
		overviewPane(), healthPane(), alertsPane(), executorsPane(), deadPane(), operationsPane(), webhooksPane(), queuesPane(),
		schedulerPane(), flagsPane(), subscriptionsPane(), notificationsPane(), hostPane(), activityPane(), auditPane(),
	}
}

// Panes lists how the panes are called, in menu order.
func Panes() []queue.Pane {
	var list []queue.Pane
	for _, p := range declared() {
		list = append(list, p.Pane)
	}
	return list
}

// newPanes are the panes with their own levels open.
func newPanes() map[queue.PaneID]*pane {
	panes := map[queue.PaneID]*pane{}
	for _, p := range declared() {
		p.begin()
		panes[p.ID] = &p
	}
	return panes
}

// home is the pane that esc leads back to in the end.
func home() queue.PaneID { return overviewPane().ID }

func (m *deck) tabs() []views.Tab {
	var tabs []views.Tab
	for _, p := range declared() {
		tabs = append(tabs, views.NewTab(p.Pane, p.ID == m.at, p.badge, m.feed.picture))
	}
	return tabs
}
