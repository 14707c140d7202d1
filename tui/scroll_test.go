package tui

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// The menu shows its cursor, the pane that is open, at every height, and still
// does after the terminal has become smaller.
func TestMenuShowsItsCursor(t *testing.T) {
	m := newStill(newStore(), nil, Options{Actor: "anna"})
	m.send(tea.WindowSizeMsg{Width: 80, Height: 40})
	for _, pane := range Panes() {
		m.at = pane.ID
		menu := m.menu()
		for h := 40; h >= 12; h-- {
			m.size.H = h
			shown := ansi.Strip(strings.Join(menu.lines(m.overlayContext()), "\n"))
			require.Contains(t, shown, m.display.theme.G.Cursor+pane.Keys+" ", "%s in %d lines:\n%s", pane.Title, h, shown)
		}
	}
}

// The keys that the menu lists open their panes there too, also those of two letters; gg goes to the first entry.
func TestTheMenuTakesTheKeysThatItLists(t *testing.T) {
	for _, pane := range Panes() {
		m := newStill(newStore(), newHost(), Options{Actor: "anna"})
		m.keys(append([]string{"0"}, strings.Split(pane.Keys, "")...)...)
		require.Empty(t, m.over, pane.Keys)
		require.Equal(t, pane.ID, m.at, pane.Keys)
	}
	for keys, cursor := range map[string]int{"g a": 14, "g a 0 g g": 0, "g a 0 home": 0, "g a 0 g z": 14, "g a 0 g esc": 14, "g a 0 g esc g g j": 1} {
		m := newStill(newStore(), newHost(), Options{Actor: "anna"})
		m.keys(strings.Fields(keys)...)
		if len(m.over) == 0 {
			m.keys("0")
		}
		require.Equal(t, cursor, m.over[0].(*picker).view.Cursor, keys)
	}
	m := newStill(newStore(), nil, Options{Actor: "anna"})
	m.keys("4", "o", "j", "g")
	require.Zero(t, m.over[0].(*picker).view.Cursor, "the orders have no keys of two letters")
}

// Keys pgup and pgdown always scroll a dialog or the help by a part of the
// screen, also after more pgdown than there are lines, and after the terminal
// has become larger.
func TestScrollingBack(t *testing.T) {
	a := actions.Registry().ByID(queue.ActRequeue)
	m := newStill(newStore(), nil, Options{Actor: "anna"})
	d := newDialog(1, a, queue.Request{Action: a.ID, Targets: []string{"7"}}, m.o.Now(), nil)
	plan := queue.Plan{Request: d.req, Count: 1}
	for i := range 60 {
		plan.Lines = append(plan.Lines, queue.PlanLine{Label: "line", Value: queue.Clean(fmt.Sprint(i, " of this plan"))})
	}
	d.preview(plan, false, m.o.Now())
	for name, o := range map[string]overlay{"dialog": d, "help": m.help()} {
		m.size.W, m.size.H = 60, 20
		frame := func() string { return strings.Join(o.lines(m.overlayContext()), "\n") }
		scroll := func(key string) bool {
			was, at := frame(), m.overlayContext()
			at.now = at.now.Add(quietFor)
			o.update(keyOf(key), at)
			return frame() != was
		}
		past := func() { // the end, and some keys more
			for scroll("pgdown") {
			}
			for range 5 {
				scroll("pgdown")
			}
		}
		past()
		require.True(t, scroll("pgup"), name)
		past()
		m.size.W, m.size.H = 110, 30
		require.True(t, scroll("pgup"), "%s in a larger terminal", name)
	}
}

// Keys pgup and pgdown skip no line, however few a dialog or the help shows at once.
func TestScrollingSkipsNoLine(t *testing.T) {
	a := actions.Registry().ByID(queue.ActRequeue)
	m := newStill(newStore(), nil, Options{Actor: "anna"})
	d := newDialog(1, a, queue.Request{Action: a.ID, Targets: []string{"7"}}, m.o.Now(), nil)
	plan := queue.Plan{Request: d.req, Count: 20}
	for i := range 60 {
		plan.Lines = append(plan.Lines, queue.PlanLine{Label: "line", Value: queue.Clean(fmt.Sprintf("<%d> of this plan", i))})
	}
	d.preview(plan, true, m.o.Now())
	help := m.help().(*picker)
	m.size.W, m.size.H = 60, 15
	for name, o := range map[string]overlay{"dialog": d, "help": help} {
		at := m.overlayContext()
		at.now = at.now.Add(quietFor)
		frame := func() string { return ansi.Strip(strings.Join(o.lines(at), "\n")) }
		for _, key := range []string{"pgdown", "pgup"} {
			seen := frame()
			for was := ""; was != frame(); seen += frame() {
				was = frame()
				o.update(keyOf(key), at)
			}
			if name == "dialog" {
				for i := range 60 {
					require.Contains(t, seen, fmt.Sprintf("<%d>", i), key)
				}
				continue
			}
			whole := help.view
			whole.Offset = 0
			all := whole.Lines(at.env, views.Size{W: 60, H: 1000})
			for _, line := range all[1 : len(all)-3] { // without the frame and the hint
				require.Contains(t, seen, ansi.Strip(line), key)
			}
		}
	}
}

// Key n goes on from the line that it found last, also where the page cannot scroll to it.
func TestNextMatchAtTheEndOfAPage(t *testing.T) {
	m := newStill(newStore(), nil, Options{Actor: "anna"})
	m.keys("3", "enter")
	l := m.pane().top()
	l.built = views.Page{}
	for i := range 60 {
		l.built.Lines = append(l.built.Lines, queue.Choose(i == 5 || i == 50 || i == 55, "needle", "hay"))
	}
	end := 60 - m.pageRows(l)
	require.Less(t, end, 50)
	m.setFilter("needle")
	require.Equal(t, 5, l.offset)
	for _, want := range []int{end, end, 5, end} {
		m.nextMatch()
		require.Equal(t, want, l.offset)
	}
	m.moveTo(0)
	m.nextMatch()
	require.Equal(t, 5, l.offset, "the next line below the first one that is visible")
}
