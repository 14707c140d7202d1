package views_test

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// A filter finds a row by every text that the row shows: as a bare word, and
// as the value of the field of that column.
func TestFiltersMatchWhatIsShown(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	s := viewstest.Rich()
	tried := 0
	for name, src := range map[string]views.Source{
		"health": views.Health(&s), "alerts": views.Alerts(&s), "executors": views.Executors(&s), "scheduler": views.Scheduler(&s),
		"flags": views.Flags(&s), "queues": views.Lanes(&s, 200), "quarantine": views.Quarantine(viewstest.Quarantine()),
	} {
		finds := func(i int, text string) bool {
			f, err := queue.ParseFilter(text, src.Fields)
			require.NoError(t, err, "%s: %s", name, text)
			return f.MatchShown(func(w string) (any, bool) { return src.Field(i, w) }, func(w string) string { return src.Shown(i, w, e) }, e.Now)
		}
		for i := range src.Len {
			for _, c := range src.Row(i, e).Cells {
				text := ansi.Strip(c.Text)
				if text == "" || strings.ContainsAny(text, `"*?\|`) {
					continue
				}
				require.True(t, finds(i, `"`+text+`"`), "%s: %q", name, text)
				require.False(t, finds(i, `!"`+text+`"`), "%s: %q", name, text)
				tried++
			}
			for _, f := range src.Fields {
				if text := src.Shown(i, f.Name, e); f.Kind == queue.FieldText && text != "" && !strings.ContainsAny(text, `"*?\|`) && !f.Closed {
					require.True(t, finds(i, f.Name+`:"`+text+`"`), "%s: %s is %q", name, f.Name, text)
				}
			}
		}
	}
	require.Greater(t, tried, 300)
	require.Empty(t, views.DeadGroups(&s).Shown(0, "", e), "actions take what the database finds")
}
