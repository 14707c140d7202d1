package tui

import (
	"cmp"
	"context"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/viewstest"
)

// still is the model without a Bubble Tea program and without goroutines: the
// test does at once what the commands of the model would do, except waiting.
type still struct {
	*root
	store *fakeStore
}

func newStill(s *fakeStore, h Host, o Options) *still {
	o.Now = viewstest.Now
	o.UTC = true
	o.Save = (&folder{}).save
	m := newRoot(context.Background(), s, h, o)
	st := &still{m, s}
	st.send(tea.ColorProfileMsg{Profile: colorprofile.ANSI256}, tea.WindowSizeMsg{Width: 120, Height: 40})
	st.load()
	return st
}

// load sends the model the snapshot, session and lists that its commands would
// have read.
func (s *still) load() {
	snap, err := s.store.Snapshot(context.Background(), 0)
	s.send(snapshotMsg{snapshot: snap, err: err})
	page, _ := s.store.List(context.Background(), queue.Query{Kind: queue.ListSession})
	s.send(sessionMsg{session: queue.Of[*queue.Session](page)})
	s.poll1()
	s.lists()
}

func (s *still) poll1() {
	p := polledMsg{link: s.store.Link()}
	if s.host != nil {
		st := s.host.Status()
		p.host = &st
	}
	s.send(p)
}

// lists answers the query of the open level, as the database would.
func (s *still) lists() {
	l := s.pane().top()
	if l.list.queried() {
		page, err := s.store.List(context.Background(), l.list.query)
		if l.list.reading == 0 { // the console would read this list at its next heartbeat
			l.list.reading = -1
		}
		s.send(pageMsg{read: l.list.reading, page: page, err: err})
	}
}

func (s *still) send(msgs ...tea.Msg) {
	for _, m := range msgs {
		_, _ = s.Update(m)
	}
}

func (s *still) keys(keys ...string) {
	for _, k := range keys {
		s.send(keyOf(k))
		s.lists()
	}
}

// plans answers the open dialog, if it waits for a plan.
func (s *still) plans() {
	if len(s.over) == 0 {
		return
	}
	if d, ok := s.over[len(s.over)-1].(*dialog); ok && d.stage == stagePlanning {
		p, err := s.store.Plan(context.Background(), d.req)
		s.send(plannedMsg{dialog: d.serial, plan: p, err: err})
	}
}

// tours returns sequences of keys, by name. Together they lead to every pane,
// two levels deep, and to the overlays.
func tours() map[string][]string {
	all := map[string][]string{
		"dead letters": {"5", "enter", "space", "v", "j"},
		"menu":         {"0"}, "help": {"?"}, "help filtered": {"?", "/", "d"}, "order": {"4", "o"},
		"filter": {"2", "/", "x", ":"}, "command": {":", "f", "tab"}, "ack": {"3", "A"}, "ack preview": {"3", "A", "x", "tab", "enter"},
		"requeue": {"5", "R", "x", "enter"}, "flag set": {"g", "f", "E"}, "register": {"4", "N"}, "tick": {"9", "T"}, "quit": {"q"}, "paused": {"p"},
		"chord":  {"g"},
		"leases": {"8", "G", "space", "v", "k"}, "lease page": {"8", "G", "enter"}, "jobs": {"8", "enter", "space", "v", "j"},
		"cancel": {"8", "C", "x", "enter"}, "release": {"8", "G", "L", "x", "enter"},
		"resolution": {"g", "s", "G", "enter"}, "mute": {"g", "s", "D", "x", "enter"}, "event subscription form": {"g", "s", "G", "N"},
		"subscribe": {"4", "E"}, "subscription": {"4", "G", "E"}, "subscription page": {"4", "G", "enter"}, "notification run": {"g", "n", "G", "enter"},
		"notification requeue": {"g", "n", "R", "x", "enter"}, "job dead letter": {"5", "j", "j", "enter", "enter"},
		"export": {"g", "a", "x"}, "export of dead letters": {"5", "enter", "x", "backspace", "enter"}, "export of leases": {"8", "G", "space", "x"},
	}
	for _, p := range Panes() {
		keys := strings.Split(p.Keys, "")
		all[string(p.ID)+" pane"] = keys
		all[string(p.ID)+" level"] = append(keys[:len(keys):len(keys)], "enter")
		all[string(p.ID)+" second level"] = append(keys[:len(keys):len(keys)], "enter", "enter")
	}
	return all
}

// After g, the footer names every pane that a second key opens, also at 80
// columns.
func TestChordNamesItsPanes(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("g")
		c.sees("g first row")
		for _, p := range Panes() {
			if k, ok := strings.CutPrefix(p.Keys, "g"); ok {
				c.sees(k + " " + strings.ToLower(cmp.Or(p.Short, p.Title)))
			}
		}
	})
}

// Each pane has its own name, key and help, and each action names only panes
// that exist.
func TestPanesAreSound(t *testing.T) {
	panes, keys := newPanes(), map[string]bool{}
	require.Len(t, panes, len(declared()), "two panes have one name")
	for _, p := range declared() {
		require.False(t, keys[p.Keys], "%s is there twice", p.Keys)
		keys[p.Keys] = true
		require.Regexp(t, `^([1-9]|g[a-z])$`, p.Keys, p.ID)
		require.NotEmpty(t, p.Title, p.ID)
		require.NotEmpty(t, p.From, p.ID)
		require.NotEmpty(t, p.Help, p.ID)
	}
	for _, a := range actions.Registry() {
		for _, id := range a.Panes {
			require.Contains(t, panes, id, a.ID)
			require.True(t, a.Key == "" || a.Targets.Name == "" || panes[id].targets[a.ID] != nil || panes[id].elsewhere[a.ID] != "", "%s works in %s, which has no target for it", a.ID, id)
		}
		require.Equal(t, a.Local(), hosted[a.ID] != nil, a.ID)
		for id, p := range panes {
			require.True(t, p.targets[a.ID] == nil || worksIn(a, id), "%s has a target for %s, which does not work there", id, a.ID)
		}
	}
}

func toured(s *fakeStore, h Host, o Options, keys []string) *still {
	m := newStill(s, h, o)
	for _, k := range keys {
		m.keys(k)
		m.plans()
	}
	return m
}

func BenchmarkKeyToFrame(b *testing.B) {
	for _, c := range []struct {
		name string
		w, h int
	}{{"80x24", 80, 24}, {"200x60", 200, 60}} {
		b.Run(c.name, func(b *testing.B) {
			s := newStore()
			s.deadLetters = viewstest.DeadLetters(100_000)
			m := newStill(s, nil, Options{Actor: "anna"})
			m.send(tea.WindowSizeMsg{Width: c.w, Height: c.h})
			m.keys("5", "enter")
			require.Equal(b, 100_000, m.pane().top().grid.src.Len)
			j := keyOf("j")
			for b.Loop() {
				m.send(j)
				_ = m.View()
			}
		})
	}
	b.Run("overview 200x60", func(b *testing.B) {
		m := newStill(newStore(), nil, Options{Actor: "anna"})
		m.send(tea.WindowSizeMsg{Width: 200, Height: 60})
		j, k := keyOf("j"), keyOf("k")
		for b.Loop() {
			m.send(j)
			_ = m.View()
			m.send(k)
		}
	})
}

// Drawing the Overview is most of the cost of a key in pane 1. It is drawn
// twice: once to move the cursor, and once for the frame.
func TestKeyInOverviewDrawsItOnce(t *testing.T) {
	m := newStill(newStore(), nil, Options{Actor: "anna"})
	m.send(tea.WindowSizeMsg{Width: 200, Height: 60})
	l := m.pane().top()
	drawn, board := 0, l.board
	require.NotNil(t, board)
	l.board = func(at scene, s views.Size, cursor views.Target) views.OverviewView {
		drawn++
		return board(at, s, cursor)
	}
	for _, k := range []string{"j", "k", "G"} {
		drawn = 0
		m.send(keyOf(k))
		require.Equal(t, 1, drawn, k)
		was := l.cursor
		m.settleOverview(l)
		require.Equal(t, was, l.cursor, "%s: the row is that of a new drawing", k)
	}
}
