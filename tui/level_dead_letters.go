package tui

import (
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// deadLetters is the table that lists the dead letters of a group.
type deadLetters struct{}

// deadLettersLevel returns the level that lists the dead letters that match
// filter.
func deadLettersLevel(id, title, filter string) level {
	l := level{id: id, title: title, table: deadLetters{}, grid: newGrid(true)}
	l.list = pagedList(queue.Query{Kind: queue.ListDeadLetters, Filter: filter}, func(x queue.DeadLetter) string { return x.ID })
	l.list.base, l.list.byFilter = filter, true
	l.targets = deadLetterTargets(selectionTarget("there is no dead letter under the cursor"))
	return l
}

func (deadLetters) what() string { return "dead letters of a group" }

func (deadLetters) rows(at scene) views.Source {
	return listSource(at, views.DeadLetters(queue.Of[[]queue.DeadLetter](at.level.list.page)))
}

func (deadLetters) under(at scene, i int) level {
	return deadLetterLevel(queue.Of[[]queue.DeadLetter](at.level.list.page)[i])
}

// deadLetterTargets returns the targets of all actions on dead letters, which
// are the same.
func deadLetterTargets(meant target) map[queue.ActionID]target {
	return map[queue.ActionID]target{queue.ActRequeue: meant, queue.ActResolve: meant, queue.ActReopen: meant, queue.ActUndoRequeue: meant, queue.ActBulkPlan: meant}
}

// selectionTarget returns the target function of an action on a list. If the
// operator selected all rows (ctrl+a), the request carries the filter.
// Otherwise it carries the ids of the selected rows, else that of the row
// under the cursor, and in Within the filter, for the button "all that match".
// none is the reason if there is no row.
func selectionTarget(none string) target {
	return func(at scene, req *queue.Request) string {
		l := at.level
		if l.grid.all {
			req.Filter = l.list.matching()
			return ""
		}
		rows, problem := at.chosen()
		if problem != "" {
			return problem
		}
		if len(rows) == 0 {
			return at.noRow(none)
		}
		for _, i := range rows {
			req.Targets = append(req.Targets, l.grid.src.ID(i))
		}
		req.Within = l.list.matching()
		return ""
	}
}

// deadLetterLevel returns the page of one dead letter.
func deadLetterLevel(x queue.DeadLetter) level {
	l := level{id: x.ID, title: views.ShortID(x.ID), list: listOf(queue.ListDeadLetter, x.ID)}
	l.targets = deadLetterTargets(fixedTarget(x.ID))
	l.targets[queue.ActReveal] = fixedTarget(x.ID)
	l.targets[queue.ActErase] = func(at scene, req *queue.Request) string {
		now := x
		if d := queue.Of[*queue.DeadLetterDetail](at.level.list.page); d != nil {
			now = d.DeadLetter
		}
		switch {
		case now.Source == "": // only the id is known
			return "the dead letter is not read yet"
		case now.EventID == 0:
			return now.Refuses(queue.ActErase)
		}
		req.Targets = []string{queue.EventDeadLetterID(strconv.FormatInt(now.EventID, 10))}
		return ""
	}
	l.page = func(at scene) (views.Page, bool) {
		d := queue.Of[*queue.DeadLetterDetail](at.level.list.page)
		if d == nil && x.Source == "" { // only the id is known: no list had the row
			return views.ReadingPage("Dead letter "+x.ID, at.env, at.size.W), true
		}
		if d != nil {
			shown := *d
			shown.Payload, shown.PayloadWhyNot, shown.Revealed = at.level.shown(at.now, d.Payload, d.PayloadWhyNot)
			d = &shown
		}
		return views.DeadLetterPage(x, d, at.env, at.size.W), true
	}
	return l
}

// The ways to a row that can be erased (key Z) or revealed (key V).
const (
	openDeadLetterFirst = "open a dead letter first (enter); Z erases the payload of its event"
	openPayloadFirst    = "open a dead letter or a job first (enter); V reveals its payload"
)
