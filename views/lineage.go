package views

import (
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// lineage shows the generations of one piece of work, oldest first: event →
// saga → delivery jobs → dead letter → requeued saga; or a job and its
// replays; or an event. The open dead letter is marked. left is the number of
// generations that are not shown.
func (p *pageBuilder) lineage(steps []queue.LineageStep, left int64) {
	if len(steps) == 0 {
		return
	}
	e, th := p.e, p.e.Theme
	ids := 13
	for _, s := range steps {
		ids = max(ids, min(theme.Width(shortStep(s))+1, len("event:")+shortLen+1))
	}
	status := 14 // for a requeue, this column has the reason
	for _, s := range steps {
		status = max(status, min(theme.Width(theme.Safe(s.Status)), p.w-48-ids, 44))
	}
	p.head("Lineage")
	if left > 0 {
		p.para("+"+Plural(left, "more distant generation is", "more distant generations are")+" not shown", th.Dim)
	}
	for i, s := range steps {
		front := "     "
		switch {
		case s.Current:
			front = "   " + th.Accent.Paint(th.G.Cursor) + " "
		case i > 0:
			front = "   " + th.Dim.Paint(th.G.Tee) + " "
		}
		if i > 0 && s.Generation != steps[i-1].Generation {
			p.para("generation "+strconv.Itoa(s.Generation), th.Dim)
		}
		at := ""
		if s.At != nil {
			at = e.Clock(*s.At)
		}
		by := queue.Choose(s.By.Empty(), "", " by "+s.By.String())
		p.row(front, theme.Blank(17), part{theme.Safe(s.Kind), 12, th.Text}, part{shortStep(s), ids, th.Strong},
			part{theme.Safe(s.Status), status + 1, th.Text}, part{strings.TrimSpace(at + theme.Safe(by)), 0, th.Dim})
	}
}

// shortStep returns the id of a step, shortened unless the id is the name of a recipient.
func shortStep(s queue.LineageStep) string {
	return queue.Choose(s.Kind == "attempt", s.ID.String(), ShortID(s.ID.String()))
}
