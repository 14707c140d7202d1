package views_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// requireOwn fails if the text has a character that could control a terminal, other than qtop's own
// colours and line ends.
func requireOwn(t *testing.T, what, got string) {
	t.Helper()
	for _, r := range viewstest.Uncoloured(got) {
		if r != '\n' && queue.Unsafe(r) {
			require.Failf(t, "unsafe", "%s draws %U", what, r)
		}
	}
}

// requireOwn sees every escape sequence except the colours.
func TestUncoloured(t *testing.T) {
	t.Parallel()
	for with, without := range map[string]string{
		"":                               "",
		"a\x1b[1;31mb\x1b[0mc\x1b[m":     "abc",
		"\x1b[2J\x1b[31\x1b[31mx\x1b[":   "\x1b[2J\x1b[31x\x1b[",
		"\x1b\x1b[4mm\x1b]0;t\a\x1b[?1m": "\x1bm\x1b]0;t\a\x1b[?1m",
		"\x1b[38;5;12":                   "\x1b[38;5;12",
	} {
		require.Equal(t, without, viewstest.Uncoloured(with), "%q", with)
	}
}

func TestHostileStringsReachNoScreen(t *testing.T) {
	t.Parallel()
	n := 0
	for _, bad := range viewstest.Hostile() {
		w := viewstest.HostileWorld(bad)
		for name, body := range bodies(w) {
			sizes := []views.Size{{W: 80, H: 24}, {W: 200, H: 60}}
			if n++; os.Getenv("QTOP_TEST_FULL") == "" {
				sizes = sizes[n%2:][:1] // to save time, the two sizes take turns
			}
			for _, size := range sizes {
				e := env(theme.Options{Depth: theme.Rich})
				got := screen(w, name, body, e, size)
				requireOwn(t, name, got)
				requireFits(t, got, size)
			}
		}
		h := views.Header{Profile: bad, Actor: bad, Session: &w.Session, Server: &w.Snapshot.Server, Link: queue.Link{State: bad, Reason: queue.Clean(bad)}}
		e := env(theme.Options{})
		requireOwn(t, "header", h.Line(e, 120))
		requireOwn(t, "banner", views.Banner{Word: "LOST", Text: bad}.Line(e, 120))
		requireOwn(t, "status", views.Status{Left: bad, Right: []string{bad}}.Line(e, 120))
		for _, line := range dialogOf(bad).Lines(e, views.Size{W: 80, H: 24}) {
			requireOwn(t, "dialog", line)
		}
		for _, line := range picksOf(bad).Lines(e, views.Size{W: 80, H: 24}) {
			requireOwn(t, "picks", line)
		}
		for _, line := range views.PlainLines(&w.Snapshot, e) {
			requireOwn(t, "plain lines", line.Text+line.Over)
		}
	}
}

func dialogOf(s string) views.Dialog {
	return views.Dialog{
		Title: s, Intro: []string{s}, Facts: []queue.PlanLine{{Label: s, Value: queue.Clean(s)}}, Notes: []string{s},
		Fields:  []views.Field{{Label: s, Value: s, Caret: 3, Help: s}, {Label: s, Value: s, Error: s}, {Label: s, Value: s, Choices: true}},
		Buttons: []string{s, s}, Hint: s, Error: s,
	}
}

func picksOf(s string) views.PickList {
	return views.PickList{Title: s, Hint: s, Filter: s, KeyCol: 8, WordCol: 10, Cursor: -1, Entries: []views.Entry{{Word: s}, {Key: s, Word: s, Text: s}, {Key: s, Word: s, Text: s, Off: s}}}
}
