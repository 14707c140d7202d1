package tui

import (
	"slices"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// deadPane returns pane 5: groups of dead letters; enter on a group lists its
// dead letters.
func deadPane() pane {
	p := pane{
		Pane: queue.Pane{
			ID: queue.PaneDead, Keys: "5", Title: "Dead letters", Short: "Dead", Also: "dlq",
			From: "dead_letters, job_dead_letter, iu_route_dead_letter",
			Help: "groups, dead letters, details; requeue, close, reveal",
		},
		badge:      views.DeadBadge,
		selectable: true,
		source:     func(at scene) views.Source { return snapshotSource(at, views.DeadPane(at.snap)) },
		enter: func(at scene, i int) level {
			if i >= len(at.snap.DeadGroups) { // the last row, which counts the groups that the snapshot leaves out
				return deadLettersLevel(at.level.grid.src.ID(i), "all open dead letters", "")
			}
			g := at.snap.DeadGroups[i]
			within := withinGroups(at.level.grid.filter)
			title := g.Code.String() + " " + views.GroupNames(at.snap.DeadGroups)[i] + queue.Choose(within == "", "", " within "+within)
			return deadLettersLevel(at.level.grid.src.ID(i), title, strings.TrimSpace(groupFilter(g)+" "+within))
		},
		nested:        deadLetters{},
		tableLines:    func(_ scene, s views.Size) int { return s.H },
		enterOnFollow: true,
	}
	p.targets = deadLetterTargets(groupTarget)
	p.targets[queue.ActUndoRequeue], p.targets[queue.ActReopen] = openGroupFirst("requeued"), openGroupFirst("resolved")
	p.targets[queue.ActReveal] = openPayloadFirst
	p.targets[queue.ActErase] = openDeadLetterFirst
	return p
}

// groupTarget fills in filters that match the dead letters of the selected
// groups, else of the group under the cursor. If the list is filtered, only
// dead letters that match its filter are targets.
func groupTarget(at scene, req *queue.Request) string {
	if at.level.isWhy {
		return "this page is about a queue; esc goes back to the dead letters"
	}
	rows, problem := at.chosen()
	if problem != "" {
		return problem
	}
	if len(rows) == 0 {
		return at.noRow("there is no group under the cursor")
	}
	within := withinGroups(at.level.grid.filter)
	// The button "all that match" works on dead letters, so it is offered only
	// if the whole filter applies to them (withinGroups).
	if f := at.level.grid.filter; !f.Empty() && within == f.String() {
		req.Within = within
	}
	var filters []string
	for _, row := range rows {
		if row >= len(at.snap.DeadGroups) {
			return "this row stands for many groups: press enter to list their dead letters, and filter them"
		}
		filters = append(filters, strings.TrimSpace(groupFilter(at.snap.DeadGroups[row])+" "+within))
	}
	req.Select(filters)
	return ""
}

// openGroupFirst refuses an action on a group: groups count open dead letters, and the action works
// on dead letters in another state.
func openGroupFirst(state string) target {
	return func(at scene, _ *queue.Request) string {
		return at.noRow("the dead letters of a group are open: press enter, then / state:" + state + " lists those that are " + state)
	}
}

// withinGroups returns the part of a filter over groups that also applies to a
// single dead letter: every term except "open", the number of open dead letters
// of a group.
func withinGroups(f *queue.Filter) string {
	if f.Empty() {
		return ""
	}
	within := *f
	within.Terms = slices.DeleteFunc(slices.Clone(f.Terms), func(t queue.Term) bool { return t.Field == "open" })
	return within.String()
}

// groupFilter returns the filter that matches the dead letters of a group.
func groupFilter(g queue.DeadGroup) string {
	f := queue.Filter{Terms: []queue.Term{
		exactly("source", queue.FieldText, g.Source), exactly("code", queue.FieldText, g.Code.String()),
	}}
	if g.SubscriptionID != 0 {
		f.Terms = append(f.Terms, exactly("subscription", queue.FieldNumber, strconv.FormatInt(g.SubscriptionID, 10)))
	} else {
		f.Terms = append(f.Terms, exactly("endpoint", queue.FieldText, g.Endpoint.String()))
	}
	f.Terms = append(f.Terms, exactly("domain", queue.FieldText, g.Domain.String()))
	return f.String()
}
