package views_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// plainText returns the texts of lines, one per line.
func plainText(lines []views.PlainLine) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Text + "\n")
	}
	return b.String()
}

// The lines of --accessible are compared with their goldens, with and without --ascii.
func TestPlainLinesGoldens(t *testing.T) {
	t.Parallel()
	for name, w := range worlds() {
		text := plainText(views.PlainLines(&w.Snapshot, env(theme.Options{ASCII: true})))
		for look, got := range map[string]string{"plain": theme.Spell(text), "ascii": theme.ASCIIText(text)} {
			path := filepath.Join("testdata", "accessible-"+name+"-"+look+".golden")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), got, path)
		}
	}
}

// A condition that only becomes older or changes slightly is not printed
// again. No two lines have the same key.
func TestPlainLinesAreNewsOnce(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{ASCII: true})
	news := func(s queue.Snapshot, e views.Env) (keys, all []string) {
		for _, l := range views.PlainLines(&s, e) {
			keys, all = append(keys, l.Key), append(all, l.Key+l.State)
		}
		return keys, all
	}
	s := viewstest.RichWorld().Snapshot
	keys, before := news(s, e)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(keys))), len(keys), "%q", keys)

	s.Alerts, s.Held, s.Waiting, s.DeadGroups = slices.Clone(s.Alerts), slices.Clone(s.Held), slices.Clone(s.Waiting), slices.Clone(s.DeadGroups)
	for i := range s.Alerts {
		s.Alerts[i].AgeSeconds += 90
		s.Alerts[i].Ratio *= 1.01
	}
	for i := range s.Held {
		s.Held[i].AgeSeconds += 90
	}
	for i := range s.Waiting {
		s.Waiting[i].AgeSeconds += 90
		s.Waiting[i].Waiting++
	}
	for i := range s.DeadGroups {
		if n := s.DeadGroups[i].Open + 1; n&(n-1) != 0 { // when a group has doubled (a power of two), its line is printed again
			s.DeadGroups[i].Open = n
		}
	}
	e.Now = e.Now.Add(90 * time.Second)
	_, after := news(s, e)
	require.Equal(t, before, after)

	s.DeadGroups[0].Open *= 2
	s.Alerts[0].State, s.Alerts[0].AckedBy = "acked", queue.Clean("ben")
	_, after = news(s, e)
	changed := 0
	for i := range after {
		if after[i] != before[i] {
			changed++
		}
	}
	require.Equal(t, 2, changed)
}
