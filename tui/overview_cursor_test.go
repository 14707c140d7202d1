//go:build !race

package tui

import (
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// Several rows of the Overview can lead to the same row of a pane: two transactions that hold the
// events of one tick worker, or a suspended endpoint for which work waits. The cursor reaches each of
// them, in both directions, and one row is drawn as the cursor.
func TestTheCursorOfTheOverviewReachesEveryRow(t *testing.T) {
	t.Parallel()
	s := newStore()
	pid := int64(4711)
	held := s.snap.Held[0]
	held.Pid, held.User = &pid, queue.Clean("reporting")
	s.snap.Held = append(s.snap.Held[:1:1], held)
	s.snap.Waiting[0].Source, s.snap.Waiting[0].Subject = "webhook", queue.Clean("7")
	for i := range s.snap.Suspended {
		s.snap.Suspended[i].SubscriptionID = 7
	}
	s.snap.Ticks[0].Why = queue.Clean("its interval is 0")
	for _, size := range [][2]int{{80, 24}, {120, 60}, {200, 60}} {
		m := newStill(s, nil, Options{Actor: "anna"})
		m.send(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		l := m.pane().top()
		l.expanded = map[string]bool{"HELD": true, "SUSPENDED": true}
		m.settle()
		rows := m.rowsOfBoard(l)
		same := map[[2]string]int{}
		for _, r := range rows {
			same[[2]string{string(r.Pane), r.ID}]++
		}
		require.Less(t, len(same), len(rows), "no two rows lead to the same place")
		for _, k := range []string{"j", "k"} {
			for i := range rows {
				require.Equal(t, queue.Choose(k == "j", i, len(rows)-1-i), l.place, "%v %s %v", size, k, l.cursor)
				require.True(t, l.armed)
				board := ansi.Strip(strings.Join(l.board(m.scene(), m.body(), l.cursor).Lines, "\n"))
				require.Equal(t, 1, strings.Count(board, m.display.theme.G.Cursor), board)
				m.keys(k)
			}
		}
		l.target, l.armed = rows[len(rows)-1], true
		m.settle()
		require.Equal(t, len(rows)-1, l.place, "a refresh")

		// A click on a line of a row puts the cursor there; anywhere else it changes nothing.
		reached := map[int]bool{}
		body, ok := views.Split(size[0], size[1], len(m.banners()))
		require.True(t, ok)
		for _, x := range []int{0, size[0] - 1} {
			for y := range size[1] {
				before := l.place
				m.send(tea.MouseClickMsg{X: x, Y: y, Button: tea.MouseLeft})
				if l.place == before {
					continue
				}
				reached[l.place] = true
				board := l.board(m.scene(), m.body(), l.cursor).Lines
				at := slices.IndexFunc(board, func(line string) bool { return strings.Contains(ansi.Strip(line), m.display.theme.G.Cursor) })
				require.Contains(t, []int{at, at + 1}, y-body.Body.Y, "the row or its reason, %v", l.cursor)
				left, _, _ := strings.Cut(ansi.Strip(board[at]), m.display.theme.G.Cursor)
				require.Equal(t, x > 0 && size[0] >= 160, ansi.StringWidth(left) > size[0]/2, "the column that was clicked")
			}
		}
		require.Len(t, reached, len(rows), "%v", size)
	}
}

// Until the cursor was moved, the first row takes the place of one that is gone. After that, the cursor
// acts on nothing until it is moved again, and is drawn so.
func TestTheOverviewLosesTheRowOfItsCursor(t *testing.T) {
	t.Parallel()
	s := newStore()
	m := newStill(s, nil, Options{Actor: "anna"})
	m.send(tea.WindowSizeMsg{Width: 120, Height: 60})
	l := m.pane().top()
	lose := func() {
		l.target = views.Target{Pane: l.target.Pane, ID: "lost"}
		m.settle()
	}
	dim := func() bool {
		return strings.Contains(strings.Join(l.board(m.scene(), m.body(), l.cursor).Lines, "\n"), m.display.theme.Dim.Paint(m.display.theme.G.Cursor))
	}
	lose()
	require.Equal(t, m.rowsOfBoard(l)[0], l.target)
	require.True(t, l.armed)
	require.False(t, dim())
	m.keys("j")
	lose()
	require.False(t, l.armed)
	require.True(t, dim())
	require.Equal(t, "the cursor's row is gone; move to another row first", m.scene().noRow(""))
	m.keys("k")
	require.True(t, l.armed)
	require.False(t, dim())
}
