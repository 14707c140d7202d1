package views

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

func marked(at time.Time, labels map[time.Duration]string) *queue.Snapshot {
	s := &queue.Snapshot{TakenAt: at}
	for _, back := range slices.Sorted(maps.Keys(labels)) {
		s.Marks = append(s.Marks, queue.Mark{At: at.Add(-back), Label: queue.Clean(labels[back])})
	}
	return s
}

func TestRulerPutsMarksOverTheirMinute(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 10, 30, 20, 0, time.UTC)
	for _, tc := range []struct {
		marks map[time.Duration]string
		w     int
		want  string
	}{
		{nil, 20, "what                "},
		{map[time.Duration]string{0: "now"}, 20, "what            now▼"},
		{map[time.Duration]string{20 * time.Second: "this", 21 * time.Second: "before"}, 20, "what        before▼▼"},
		{map[time.Duration]string{15 * time.Minute: "deploy"}, 20, "what▼deploy         "},
		{map[time.Duration]string{10 * time.Minute: "a very long label"}, 20, "what     ▼a very lo…"},
		{map[time.Duration]string{10 * time.Minute: "deploy", 10*time.Minute + 5*time.Second: "x", 10*time.Minute + 9*time.Second: "y"}, 20, "what     ▼deploy +2 "},
		{map[time.Duration]string{10 * time.Minute: "a very long label", 10*time.Minute + 5*time.Second: "x"}, 20, "what     ▼a very… +1"},
		{map[time.Duration]string{19 * time.Minute: "first", 20*time.Minute + 21*time.Second: "gone"}, 20, "▼first              "},
		{map[time.Duration]string{5 * time.Minute: "漢字", 4 * time.Minute: "b"}, 20, "what      漢字▼▼b   "},
	} {
		got := ruler(theme.New(theme.Options{}), markers(marked(at, tc.marks), Env{}, tc.w, time.Minute), tc.w, "what")
		require.Equal(t, tc.want, got, tc.marks)
	}
}

// Wherever the marks are and however long their labels, each mark has a sign in its cell, and the
// line has its width.
func TestRulerKeepsEverySign(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	labels := []string{"", "x", "deploy 4.2", "漢字テスト", "a label that is much longer than any line has room for"}
	at := time.Date(2026, 11, 21, 10, 30, 20, 0, time.UTC)
	for range 5000 {
		marks := map[time.Duration]string{}
		for range rng.IntN(12) {
			marks[time.Duration(rng.IntN(4000))*time.Second] = labels[rng.IntN(len(labels))]
		}
		w := 8 + rng.IntN(53)
		th := theme.New(theme.Options{ASCII: rng.IntN(2) == 0})
		ps := markers(marked(at, marks), Env{}, w, time.Minute)
		line := ruler(th, ps, w, "last hour")
		require.Equal(t, w, ansi.StringWidth(line), "%q %v", line, marks)
		for _, p := range ps {
			require.Equal(t, th.G.Pin, ansi.Cut(line, p.x, p.x+1), "%q cell %d of %v", line, p.x, marks)
		}
		for _, p := range ps {
			require.Equal(t, th.G.Pin, ansi.Cut(signs(th, ps, w)+theme.Blank(w), p.x, p.x+1))
		}
	}
}

// An action of a person has a sign too. If it shares a cell with a mark, the label is that of the
// mark.
func TestRulerShowsActions(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 10, 30, 20, 0, time.UTC)
	s := marked(at, map[time.Duration]string{20 * time.Minute: "deploy"})
	act := func(back time.Duration) queue.Recent {
		return queue.Recent{AuditID: 7, At: at.Add(-back), By: queue.Clean("ben"), Action: queue.Clean("flag_set"), Target: queue.Clean("a.b"), Rows: 1}
	}
	s.Actions = []queue.Recent{act(5 * time.Minute), act(20 * time.Minute)}
	require.Equal(t, "         ▼deploy +1     ▼     ", ruler(theme.New(theme.Options{}), markers(s, Env{}, 30, time.Minute), 30, "a text without room"))
}
