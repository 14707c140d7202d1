package tui

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// chosen returns the indices of the rows of the open table that an action
// works on: the selected rows that the filter keeps, else the row under the
// cursor. If the filter hides every selected row, problem is the refusal: an
// action never works on rows that the operator cannot see.
func (at scene) chosen() (rows []int, problem string) {
	g := &at.level.grid
	if len(g.selected) == 0 {
		if i, ok := g.current(); ok {
			rows = []int{i}
		}
		return rows, ""
	}
	if rows = g.selectedRows(); len(rows) == 0 {
		return nil, "the filter hides " + queue.Choose(len(g.selected) == 1, "the selected row", "all "+views.Count(int64(len(g.selected)))+" selected rows") +
			": esc clears the filter, esc again the selection"
	}
	return rows, ""
}

// bySelection reports whether find took the targets of req from the selected
// rows: it then finds the same ones without a row under the cursor.
func (at scene) bySelection(find target, req queue.Request) bool {
	if g := &at.level.grid; len(g.selected) == 0 && !g.all {
		return false
	}
	l := *at.level
	l.grid.gone = true
	at.level = &l
	same := queue.Request{Args: map[string]string{}}
	return find(at, &same) == "" && slices.Equal(same.Targets, req.Targets) && slices.Equal(same.Filters(), req.Filters())
}

// listed returns the grid of the open table, or of the table below the open page; nil if there is none.
func (at scene) listed() *grid {
	l := at.level
	if l.page != nil {
		n := slices.IndexFunc(at.pane.levels, func(x level) bool { return x.page != nil && x.id == l.id })
		if n < 1 {
			return nil
		}
		l = &at.pane.levels[n-1]
	}
	if l.table == nil || l.grid.src.Title == nil {
		return nil
	}
	return &l.grid
}

// titles returns the names of the targets of a request that was made by a key. Numbers that no row has
// as its id are parts of the row under the cursor or of the open page, which then has the name; with
// selected rows they are named by their numbers only.
func (at scene) titles(a queue.Action, req queue.Request) (out []string) {
	g := at.listed()
	if g == nil {
		return nil
	}
	if out = at.named(a, req.Targets); out != nil {
		return out
	}
	var rows []int
	i, ok := g.current()
	switch {
	case at.level.page != nil:
		if n := g.index(at.level.id); n >= 0 {
			rows = []int{g.order[n]}
		}
	case req.Filters() != nil && g.selectable(i):
		rows, _ = at.chosen()
	case ok && (req.Filters() != nil || len(g.selected) == 0 && slices.ContainsFunc(req.Targets, numbered.MatchString)): // a filter stands for a row that cannot be selected
		rows = []int{i}
	}
	for _, i := range rows {
		out = append(out, g.src.Title(i))
	}
	return out
}

// named returns the names of the targets of an action if the open table, or that below the open page,
// shows rows that the action takes, and all of them; else nil.
func (at scene) named(a queue.Action, targets []string) (out []string) {
	g := at.listed()
	if g == nil || !worksIn(a, at.pane.ID) && at.target(a.ID) == nil {
		return nil
	}
	row := map[string]int{}
	for i := range g.src.Len {
		row[rowTaken(a, g.src.ID(i))] = i
	}
	for _, id := range targets {
		i, ok := row[id]
		if !ok {
			return nil
		}
		out = append(out, g.src.Title(i))
	}
	return out
}

// rowTaken returns the id by which an action takes the row with this id; "" if it takes no such row.
// Webhooks (7) lists endpoints and leases, whose numbers may be the same.
func rowTaken(a queue.Action, row string) string {
	job, lease := views.WebhookJob(row)
	if _, err := strconv.ParseInt(row, 10, 64); a.ID == queue.ActLeaseRelease && err == nil {
		return ""
	}
	return queue.Choose(lease && a.ID == queue.ActLeaseRelease, job, row)
}

// notTaken is the label of the lines that count rows that are not targets: selected ones that the
// filter hides, and those that a row stands for but that were not read.
const notTaken = "not taken"

// taken returns the first lines of an action's dialog: the names of the
// targets of the request, and the number of rows that are not targets.
func (at scene) taken(a queue.Action, req queue.Request) []queue.PlanLine {
	if at.level.grid.all {
		return takenLines(nil, req)
	}
	titles := at.titles(a, req)
	out := takenLines(titles, req)
	if tally := at.pane.tally; tally != nil && at.level.table != nil && len(at.pane.levels) == 1 && len(titles) > 1 {
		rows, _ := at.chosen()
		out = slices.Insert(out, min(1, len(out)), queue.PlanLine{Label: "total", Value: queue.Clean(tally(at, rows))})
	}
	if left := at.pane.leftOut; left != nil {
		if text := left(at, a); text != "" {
			out = append(out, queue.PlanLine{Label: notTaken, Value: queue.Clean(text)})
		}
	}
	if hidden := at.level.grid.hidden(); hidden > 0 && a.Targets.Many {
		out = append(out, queue.PlanLine{
			Label: notTaken, Value: queue.Clean(views.Plural(int64(hidden), "selected row that the filter hides", "selected rows that the filter hides")),
		})
	}
	return out
}

// numbered matches an id that says nothing to a person: a number, a UUID, either of them with its
// source, the pid of a session. Other ids, such as that of an executor, are names.
var numbered = regexp.MustCompile(`^([a-z]+:)?([0-9]+|[0-9a-f]{8}-[0-9a-f-]{27})(@.*)?$`)

// look asks what the targets of a form are called, if the form has only their numbers: the plan of
// its request changes nothing, and its first line has the names. Until then the form says that they
// are being read.
func (m *root) look(d *dialog) tea.Cmd {
	i := d.numbers()
	if i < 0 || d.action.Danger == queue.DangerLocal {
		return nil
	}
	d.taken = slices.Clone(d.taken)
	d.taken[i].Value = queue.Clean(d.taken[i].Value.String() + queue.Choose(len(d.req.Targets) == 1, ", its name is being read", "; their names are being read"))
	r := d.req
	r.Args = map[string]string{}
	for name, v := range d.req.Args {
		r.Args[name] = v
	}
	for _, f := range d.form {
		if f.arg.Name != reasonField {
			r.Args[f.arg.Name] = f.value()
		}
	}
	r.Reason = cmp.Or(r.Reason, "names for the form") // checked like that of any request, and not recorded
	return m.lookUp(d.serial, r)
}

// numbers returns the index of the line that has the numbers of the targets and not their names; -1 if there is none.
func (d *dialog) numbers() int {
	ids := takenLines(nil, queue.Request{Targets: d.req.Targets})
	if d.req.Filters() != nil || len(ids) == 0 || !slices.ContainsFunc(d.req.Targets, numbered.MatchString) {
		return -1
	}
	return slices.Index(d.taken, ids[0])
}

// looked shows the names of the targets in their form, or only their numbers if the answer has no names.
func (m *root) looked(msg lookedMsg) {
	d := m.dialog(msg.dialog)
	if d == nil {
		return
	}
	ids := takenLines(nil, queue.Request{Targets: d.req.Targets})
	i := slices.IndexFunc(d.taken, func(l queue.PlanLine) bool { return len(ids) > 0 && l.Label == ids[0].Label })
	if i < 0 { // the form is now for all rows that match
		return
	}
	d.taken = slices.Clone(d.taken)
	d.taken[i] = ids[0]
	switch p := msg.plan; {
	case msg.err != nil:
	case len(p.Lines) > 0:
		d.taken = slices.Insert(d.taken, i+1, p.Lines[0])
	case p.Refused != "":
		d.taken = slices.Insert(d.taken, i+1, queue.PlanLine{Label: "refused", Value: queue.Clean(p.Refused)})
	}
}

// takenLines returns lines that name the targets of a request. titles are the
// names of the target rows, or of the groups that match the request's filters;
// nil: only the ids are known.
func takenLines(titles []string, req queue.Request) (out []queue.PlanLine) {
	add := func(label, text string) { out = append(out, queue.PlanLine{Label: label, Value: queue.Clean(text)}) }
	ids := firstFew(req.Targets)
	switch n, filters := len(titles), req.Filters(); {
	case filters != nil:
		if n == len(filters) {
			add(queue.Choose(n == 1, "target", "targets"), queue.Choose(n == 1, "", fmt.Sprintf("%d groups: ", n))+tallied(titles))
		}
		add("all that match", req.Selected())
	case len(req.Targets) == 0:
	case n == 0:
		add(queue.Choose(len(req.Targets) == 1, "target", "targets"), queue.Choose(len(req.Targets) == 1, "", strconv.Itoa(len(req.Targets))+": ")+ids)
	case len(req.Targets) == 1:
		add("target", tallied(titles)+queue.Choose(titles[0] == ids || slices.Contains(strings.Fields(titles[0]), ids), "", " ("+ids+")"))
	default:
		add("targets", fmt.Sprintf("%d: %s (%s)", len(req.Targets), tallied(titles), ids))
	}
	return out
}

// tallied joins names to one text. A name that occurs several times is there
// once, with the number.
func tallied(names []string) string {
	var all []queue.Counted
	at := map[string]int{}
	for _, name := range names {
		if _, ok := at[name]; !ok {
			at[name] = len(all)
			all = append(all, queue.Counted{Name: name})
		}
		all[at[name]].N++
	}
	return queue.Names(all)
}
