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
				return deadLettersLevel(at.level.grid.src.ID(i), "all groups", "")
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
	p.tally = groupsTally
	p.targets = deadLetterTargets(groupTarget)
	delete(p.targets, queue.ActUndoRequeue)
	delete(p.targets, queue.ActReopen)
	p.elsewhere = map[queue.ActionID]string{
		queue.ActUndoRequeue: openGroupFirst("requeued"), queue.ActReopen: openGroupFirst("resolved"),
		queue.ActReveal: openPayloadFirst, queue.ActErase: openDeadLetterFirst,
	}
	return p
}

// groupTarget fills in filters that match the dead letters of the selected
// groups, else of the group under the cursor. If the list is filtered, only
// dead letters that match its filter are targets.
func groupTarget(at scene, req *queue.Request) string {
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

// groupsTally counts the dead letters of groups and their destinations. A filter of the list may
// match only some of them: only the preview counts these.
func groupsTally(at scene, rows []int) string {
	var open int64
	to := map[string]map[string]bool{}
	for _, row := range rows {
		if row >= len(at.snap.DeadGroups) {
			continue
		}
		g := at.snap.DeadGroups[row]
		open += g.Open
		if to[g.Source] == nil {
			to[g.Source] = map[string]bool{}
		}
		to[g.Source][g.Endpoint.String()] = true
	}
	var where []string
	for _, of := range []struct{ source, one, many string }{
		{"webhook", "endpoint", "endpoints"}, {"job", "job kind", "job kinds"}, {"event", "event type", "event types"},
	} {
		if n := int64(len(to[of.source])); n > 0 {
			where = append(where, views.Plural(n, of.one, of.many))
		}
	}
	most := queue.Choose(withinGroups(at.level.grid.filter) == "", "", "at most ")
	return most + views.Plural(open, "open dead letter", "open dead letters") + ": " + strings.Join(where, ", ") + "; the preview counts again"
}

// openGroupFirst returns the way to the rows of an action that works on dead letters in this state:
// groups count open ones.
func openGroupFirst(state string) string {
	return "the dead letters of a group are open: press enter, then / state:" + state + " lists those that are " + state
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
