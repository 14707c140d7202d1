package tui

import (
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// deadPane is pane 5: groups of dead letters, under each its letters.
func deadPane() pane {
	p := pane{
		Pane: queue.Pane{
			ID: queue.PaneDead, Keys: "5", Title: "Dead letters", Short: "Dead", Also: "dlq",
			From: "dead_letters, job_dead_letter, iu_route_dead_letter",
			Help: "groups, letters, detail; requeue, close, reveal",
		},
		badge:  views.DeadBadge,
		source: func(at scene) views.Source { return pictured(at, views.DeadGroups(at.pic)) },
		enter: func(at scene, i int) level {
			g := at.pic.DeadGroups[i]
			return lettersLevel(at.level.grid.src.ID(i), g.Code.String()+" "+views.GroupNames(at.pic.DeadGroups)[i], groupFilter(g))
		},
		room: func(_ scene, s views.Size) int { return s.H },
		goOn: true,
	}
	p.targets = lettersTargets(groupMeant)
	p.targets[queue.ActReveal] = unrevealed
	p.targets[queue.ActErase] = unopened
	p.forms = map[queue.ActionID]form{queue.ActReveal: {line: func(*queue.Snapshot, []string, *queue.Request) string {
		return "a payload is revealed on its page: open it, then V" // what it shows needs a page to stand on
	}}}
	return p
}

// groupMeant is the whole group under the cursor.
func groupMeant(at scene, req *queue.Request) string {
	if at.level.aside {
		return "this page is about a queue; esc goes back to the letters"
	}
	i, ok := at.level.grid.current()
	if !ok {
		return at.noRow("there is no group under the cursor")
	}
	req.Filter = groupFilter(at.pic.DeadGroups[i])
	return ""
}

// groupFilter is the filter of a group in the words of the filter language.
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
