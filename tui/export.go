package tui

// This file is x: what a pane shows, in a file. The rows that are here are written
// as they stand, in the order and with the filter of the pane; a list of which
// only a part is here is read from its beginning, in its own order.

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

const (
	pathLess = 45               // cells of the status line that are not the path's
	savedFor = 20 * time.Second // a path takes longer to read than a word
)

// export asks for the file's name; with one it begins.
func (m *root) export(file string) tea.Cmd {
	switch {
	case m.o.Save == nil:
		m.warn("no file can be written from here; qtop export does it")
		return nil
	case m.saving != nil:
		m.warn("an export is running; esc cancels it")
		return nil
	}
	x, why := m.toExport()
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

// toExport is the list under the cursor; else why there is none.
func (m *deck) toExport() (x queue.Export, why string) {
	l := m.pane().top()
	var name string
	switch {
	case l.board != nil:
		return x, "the Overview is no list; the panes are: x works there"
	case l.page != nil:
		for _, list := range queue.ExportLists() { // of what a page shows under its head
			if list.Of != "" && list.Kind == l.list.query.Kind {
				name = list.Name
			}
		}
		if name == "" {
			return x, "a page is no list; esc goes back to one: x works there"
		}
	case l.grid.src.Export == nil:
		return x, "the loops of this process are in no list; qtop export hosts has every host's"
	default:
		name = l.exportName()
	}
	var err error
	if x.List, err = queue.ExportListNamed(name); err != nil {
		return x, "there is no row here"
	}
	x.Query = l.list.query
	if x.List.Plain {
		x.Query.Filter = ""
	}
	if l.page != nil {
		return x, ""
	}
	order, marked := l.grid.order, l.grid.marked()
	picked := len(marked) > 0 && !l.grid.all
	if picked {
		order = slices.DeleteFunc(slices.Clone(order), func(i int) bool { return !l.grid.marks[l.grid.src.ID(i)] })
	}
	if picked || x.List.Kind == "" || l.list.whole() {
		x.Rows, x.AsOf = l.grid.src.Exported(name, order), l.list.page.AsOf
		if x.List.Kind == "" {
			x.AsOf = m.feed.picture.TakenAt
		}
	}
	return x, ""
}

// exportName is the list in which the marked rows stand, or the one under the
// cursor; of a table without rows the one that it would have.
func (l *level) exportName() string {
	for _, i := range l.grid.order {
		if l.grid.marks[l.grid.src.ID(i)] && !l.grid.all {
			name, _ := l.grid.src.Export(i)
			return name
		}
	}
	if len(l.grid.order) > 0 {
		name, _ := l.grid.src.Export(l.grid.order[l.grid.cursor])
		return name
	}
	for _, list := range queue.ExportLists() {
		if list.Kind != "" && list.Kind == l.list.query.Kind {
			return list.Name
		}
	}
	return ""
}

// exportCount is how many rows there will be; empty where that is not known.
func (m *deck) exportCount(x queue.Export) string {
	switch l := m.pane().top(); {
	case x.Rows != nil:
		return views.Count(int64(len(x.Rows)))
	case l.page == nil && l.list.page.Total > 0 && x.List.Kind == l.list.query.Kind:
		return m.totalWords(l)
	}
	return ""
}

// typedExport takes a key or a paste for the name of the file.
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
		p.input = edit(p.input, msg)
	}
	p.problem = ""
	return nil
}

// startExport begins to write; the screen stays free.
func (m *root) startExport() tea.Cmd {
	x, name := m.line.export, strings.TrimSpace(m.line.input.Value())
	var err error
	if x.Format, err = queue.ExportFormatOf(name); err != nil {
		m.line.problem = why(err)
		return nil
	}
	e := &exporting{list: x.List.Name, of: m.line.of, done: make(chan struct{})}
	m.line.close()
	m.said = notice{}
	e.ctx, e.cancel = context.WithCancel(m.ctx)
	m.saving = e
	return m.save(e, x, name)
}

// saved is the end of an export.
func (m *root) saved(msg savedMsg) {
	m.saving = nil
	msg.of.cancel()
	switch {
	case msg.err != nil && msg.cancelled:
		m.tell("the export was cancelled; no file was made")
	case msg.err != nil:
		m.warn("export: " + why(msg.err))
	default:
		g, path := m.look.theme.G, clean(msg.path)
		if cells(path) > m.size.W-pathLess {
			path = g.Ellipsis + "/" + filepath.Base(path)
		}
		more := queue.Choose(msg.done.Cut, " (there are more)", "")
		m.tell(views.Count(msg.done.Rows) + " of " + msg.of.list + more + " " + g.Right + " " + path + " " + g.Dot + " as of " + m.env().Stamp(msg.done.From))
		m.said.until = m.o.Now().Add(savedFor)
	}
}
