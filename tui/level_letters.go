package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// letters is the table of the dead letters of a group.
type letters struct{}

func lettersLevel(id, title, filter string) level {
	l := level{id: id, title: title, table: letters{}, grid: newGrid(true)}
	l.list = rowsOf(queue.Query{Kind: queue.ListDeadLetters, Filter: filter}, func(x queue.DeadLetter) string { return x.ID })
	l.list.base = filter
	l.targets = lettersTargets(lettersMeant)
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

// lettersMeant is all that match, the marked ones, or the one under the cursor.
func lettersMeant(at scene, req *queue.Request) string {
	l := at.level
	switch {
	case l.grid.all:
		req.Filter = l.list.query.Filter
	case len(l.grid.marks) > 0:
		req.Targets = l.grid.marked()
	default:
		i, ok := l.grid.current()
		if !ok {
			return at.noRow("there is no letter under the cursor")
		}
		req.Targets = []string{queue.Of[[]queue.DeadLetter](l.list.page)[i].ID}
	}
	return ""
}

func letterLevel(x queue.DeadLetter) level {
	this := func(_ scene, req *queue.Request) string {
		req.Targets = []string{x.ID}
		return ""
	}
	l := level{id: x.ID, title: views.ShortID(x.ID), list: reads(queue.ListDeadLetter, x.ID)}
	l.targets = lettersTargets(this)
	l.targets[queue.ActReveal] = this
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

// unrevealed is what V says where no payload is open.
func unrevealed(scene, *queue.Request) string {
	return "open a letter or a job first (enter); V reveals its payload"
}
