package tui

// Key x writes the open list to a file. Rows that are loaded are written with
// the filter and in the order of the pane. A list of which only the first
// pages are loaded is read again from its beginning, in the order of the
// database.

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

const savedFor = 20 * time.Second // how long the result shows: a path takes longer to read than a word

// export asks for a file name; if file is given, it starts the export at once.
func (m *root) export(file string) tea.Cmd {
	switch {
	case m.o.Save == nil:
		m.warn("this console cannot write files; use qtop export")
		return nil
	case m.saving != nil:
		m.warnWhile("an export is running; esc cancels it", func() bool { return m.saving != nil })
		return nil
	}
	x, why := m.exportTarget()
	if why != "" {
		m.warn(why)
		return nil
	}
	name := cmp.Or(file, "qtop-"+x.List.Name+"-"+m.o.Now().UTC().Format("20060102T150405Z")+".csv")
	m.line = prompt{kind: promptExport, input: newInput(name), history: m.line.history, export: x, of: m.exportCount(x)}
	if file != "" {
		return m.startExport()
	}
	return nil
}

// exportTarget returns which rows the export of the open list has. If there is
// nothing to export, why is the reason.
func (m *deck) exportTarget() (x queue.Export, why string) {
	l := m.pane().top()
	var name string
	switch {
	case l.board != nil:
		return x, "the Overview cannot be exported; open another pane and press x there"
	case l.page != nil:
		for _, list := range queue.ExportLists() { // a page exports the list that it contains
			if list.Of != "" && list.Kind == l.list.query.Kind {
				name = list.Name
			}
		}
		if name == "" {
			return x, "this page cannot be exported; press esc, then x in the list"
		}
	case l.grid.src.Export == nil:
		return x, "the loops of this process cannot be exported; qtop export hosts has the loops of every host"
	default:
		name = l.exportName()
	}
	var err error
	if x.List, err = queue.ExportListNamed(name); err != nil {
		return x, queue.Choose(len(l.grid.order) > 0, "this list cannot be exported", "there are no rows to export")
	}
	x.Query = l.list.query
	if x.List.Plain {
		x.Query.Filter = ""
	}
	if l.page != nil {
		return x, ""
	}
	order, marked := l.grid.order, l.grid.selectedIDs()
	picked := len(marked) > 0 && !l.grid.all
	if picked {
		order = slices.DeleteFunc(slices.Clone(order), func(i int) bool { return !l.grid.selected[l.grid.src.ID(i)] })
	}
	if picked || x.List.Kind == "" || l.list.complete() {
		x.Rows, x.AsOf = l.grid.src.Exported(name, order), l.list.page.AsOf
		if x.List.Kind == "" {
			x.AsOf = m.feed.snapshot.TakenAt
		}
		switch {
		case picked:
		case name == "job-leases":
			x.More, _ = m.feed.snapshot.MoreLeases()
		case name == "notification-log":
			x.More = len(x.Rows) >= queue.RunsShown
		}
	}
	return x, ""
}

// exportName returns the name (in queue.ExportLists) of the list that an
// export from this level writes. A pane with two tables exports the one that
// has the selected rows, else the one with the cursor. Rows that stand for
// others, such as the other groups of dead letters, are in no list.
func (l *level) exportName() string {
	g := &l.grid
	first := func(rows []int) (name string) {
		for _, i := range rows {
			if name, _ = g.src.Export(i); name != "" {
				return name
			}
		}
		return ""
	}
	if marked := slices.DeleteFunc(slices.Clone(g.order), func(i int) bool { return g.all || !g.selected[g.src.ID(i)] }); len(marked) > 0 {
		return first(marked)
	}
	if len(g.order) > 0 {
		return cmp.Or(first(g.order[g.cursor:g.cursor+1]), first(g.order))
	}
	for _, list := range queue.ExportLists() {
		if list.Kind != "" && list.Kind == l.list.query.Kind {
			return list.Name
		}
	}
	return ""
}

// exportCount returns how many rows the export will have, or "" if that is not known.
func (m *deck) exportCount(x queue.Export) string {
	switch l := m.pane().top(); {
	case x.Rows != nil:
		return views.Count(int64(len(x.Rows)))
	case l.page == nil && l.list.page.Total > 0 && x.List.Kind == l.list.query.Kind:
		return m.totalWords(l)
	}
	return ""
}

// typedExport handles a key or a paste while the file name is typed.
func (m *root) typedExport(msg tea.Msg, key string) tea.Cmd {
	p := &m.line
	switch key {
	case "esc":
		m.line.close()
		return nil
	case "enter":
		return m.startExport()
	case "tab":
		p.set(nextFormat(p.input.Value()))
	default:
		p.input = edit(p.input, msg, oneLine)
	}
	p.problem = ""
	return nil
}

// startExport starts to write the file in the background; savedMsg reports the
// end.
func (m *root) startExport() tea.Cmd {
	x, name := m.line.export, strings.TrimSpace(m.line.input.Value())
	var err error
	if x.Format, err = queue.ExportFormatOf(name); err != nil {
		m.line.problem = why(err)
		return nil
	}
	e := &exporting{list: x.List.Name, of: m.line.of, done: make(chan struct{})}
	m.line.close()
	m.notice = notice{}
	e.ctx, e.cancel = context.WithCancel(m.ctx)
	m.saving = e
	return m.save(e, x, name)
}

// saved shows the result of an export in the status line.
func (m *root) saved(msg savedMsg) {
	m.saving = nil
	msg.of.cancel()
	switch {
	case msg.err != nil && msg.cancelled:
		m.inform("export cancelled; no file was written")
	case msg.err != nil:
		m.warn("export: " + why(msg.err))
	default:
		g, path := m.display.theme.G, clean(msg.path)
		more := queue.Choose(msg.done.Cut, " (there are more)", "")
		lead := views.Count(msg.done.Rows) + " of " + msg.of.list + more + " " + g.Right + " "
		asOf := " " + g.Dot + " as of " + m.env().Stamp(msg.done.From)
		fits := func(s string) bool { return cells(s) < m.size.W }
		if home, err := os.UserHomeDir(); err == nil && !fits(lead+path+asOf) {
			if below, ok := strings.CutPrefix(path, home+"/"); ok {
				path = "~/" + below
			}
		}
		if !fits(lead + path + asOf) {
			asOf = ""
		}
		if !fits(lead + path) {
			path = g.Ellipsis + "/" + filepath.Base(path)
		}
		m.inform(lead + path + asOf)
		m.notice.until = m.o.Now().Add(savedFor)
	}
}
