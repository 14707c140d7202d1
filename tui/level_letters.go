package tui

import (
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// letters is the table of the dead letters of a group.
type letters struct{}

func lettersLevel(id, title, filter string) level {
	l := level{id: id, title: title, table: letters{}, grid: newGrid(true)}
	l.list = rowsOf(queue.Query{Kind: queue.ListDeadLetters, Filter: filter}, func(x queue.DeadLetter) string { return x.ID })
	l.list.base = filter
	l.targets = lettersTargets(selected("", "there is no letter under the cursor"))
	return l
}

func (letters) rows(at scene) views.Source {
	return listed(at, views.Letters(queue.Of[[]queue.DeadLetter](at.level.list.page)))
}

func (letters) under(at scene, i int) level {
	return letterLevel(queue.Of[[]queue.DeadLetter](at.level.list.page)[i])
}

// lettersTargets are the actions on dead letters.
func lettersTargets(meant target) map[queue.ActionID]target {
	return map[queue.ActionID]target{queue.ActRequeue: meant, queue.ActResolve: meant, queue.ActUndoRequeue: meant, queue.ActBulkPlan: meant}
}

// selected is all that match, the marked rows, or the one under the cursor; within is
// what the filter of the list leaves unsaid.
func selected(within, none string) target {
	return func(at scene, req *queue.Request) string {
		l := at.level
		i, ok := l.grid.current()
		switch {
		case l.grid.all:
			req.Filter = strings.TrimSpace(within + " " + l.list.query.Filter)
		case len(l.grid.marks) > 0:
			req.Targets = l.grid.marked()
		case !ok:
			return at.noRow(none)
		default:
			req.Targets = []string{l.grid.src.ID(i)}
		}
		return ""
	}
}

func letterLevel(x queue.DeadLetter) level {
	l := level{id: x.ID, title: views.ShortID(x.ID), list: reads(queue.ListDeadLetter, x.ID)}
	l.targets = lettersTargets(this(x.ID))
	l.targets[queue.ActReveal] = this(x.ID)
	l.targets[queue.ActErase] = func(_ scene, req *queue.Request) string {
		if x.EventID == 0 {
			return "only webhook events can be erased: what jobs and routed events hold goes with their retention"
		}
		req.Targets = []string{queue.EventLetter(strconv.FormatInt(x.EventID, 10))}
		return ""
	}
	l.page = func(at scene) (views.Page, bool) {
		d := queue.Of[*queue.DeadLetterDetail](at.level.list.page)
		if d != nil {
			shown := *d
			shown.Payload, shown.PayloadWhyNot, shown.Revealed = at.level.shown(at.now, d.Payload, d.PayloadWhyNot)
			d = &shown
		}
		return views.LetterPage(x, d, at.env, at.size.W), true
	}
	return l
}

// unopened is what Z says where no letter is open.
func unopened(scene, *queue.Request) string {
	return "open a letter first (enter); Z erases what its event holds"
}

// unrevealed is what V says where no payload is open.
func unrevealed(scene, *queue.Request) string {
	return "open a letter or a job first (enter); V reveals its payload"
}
