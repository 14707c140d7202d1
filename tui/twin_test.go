package tui

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func TestPrintedCommandIsNeverCut(t *testing.T) {
	r := queue.Request{Action: queue.ActRequeue, Reason: "r"}
	for range 300 {
		r.Targets = append(r.Targets, "job:01900000-0000-7000-8000-000000000000")
	}
	line := actions.Registry().ByID(queue.ActRequeue).Command(r)
	require.Equal(t, 300, strings.Count(line, "job:"))
	require.NotContains(t, line, "…")
}

// An action on groups works on the selected ones, else on the group under the
// cursor, and within each only on dead letters that match the filter.
func TestGroupsAreTakenAsTheyAreShown(t *testing.T) {
	const acme, slow = "source=webhook code=HTTP_503 subscription=7 domain=billing", "source=webhook code=TIMEOUT subscription=9 domain=iu"
	for _, x := range []struct {
		keys []string
		want []string
	}{
		{[]string{"j", "R"}, []string{slow}},
		{[]string{"space", "space", "N"}, []string{acme, slow}},
		{[]string{"/", "filter", "R"}, []string{acme + " code:HTTP* age>1h"}},
		{[]string{"/", "filter", "ctrl+a", "C"}, []string{acme + " code:HTTP* age>1h"}},
	} {
		s := newStore()
		run(t, setup{store: s}, func(c *console) {
			c.press("5")
			for _, k := range x.keys {
				if k == "filter" {
					c.typing("code:HTTP* age>1h open>10")
					c.press("enter")
					continue
				}
				c.press(k)
			}
			c.model(func(m *root) {
				require.Len(t, m.over, 1, m.notice.text)
				require.Equal(t, x.want, m.over[0].(*dialog).req.Filters())
			})
		})
	}
}

// Names may be quoted after ":why", ":at" and ":export" as everywhere on a command line, and those
// that pages print are; a name without quotes is taken as it is. What tab offers can be sent.
func TestNamesAfterWhyAreWords(t *testing.T) {
	odd := `hook "x y" o'neil's`
	s := newStore()
	s.snap.Waiting[0].Source, s.snap.Waiting[0].Subject, s.snap.Waiting[0].Queue = "webhook", queue.Clean(odd), queue.Clean(odd)
	name := s.snap.Waiting[0].Name()
	for line, want := range map[string]string{
		"why 'job kg.reindex in kg'": "job kg.reindex in kg", "why job kg.reindex in kg": "job kg.reindex in kg", "qtop why 'job kg.reindex in kg'": "job kg.reindex in kg",
		"why event o'brien": "event o'brien", "why " + queue.ShellQuote(odd): odd,
	} {
		m := newStill(s, nil, Options{Actor: "anna"})
		require.NotNil(t, m.command(line), "%s: %s", line, m.notice.text)
		require.Equal(t, want, m.pane().top().list.query.ID, line)
	}
	m := newStill(s, nil, Options{Actor: "anna"})
	for _, begun := range []string{"why " + name[:len(name)-3], "why '" + name[:4]} {
		require.Contains(t, m.offers(begun), "why "+queue.ShellQuote(name))
	}
	require.Contains(t, m.offers("why "), "why "+s.snap.Waiting[1].Name(), "blanks alone need no quotes here")

	a := queue.Alert{Kind: queue.AlertBacklog, Subject: queue.Clean("backlog:" + odd)}
	page := views.AlertPage(a, &s.snap, nil, m.env(), 200)
	all := ansi.Strip(strings.Join(page.Lines, "\n"))
	require.Contains(t, all, "qtop why "+queue.ShellQuote(odd)+" shows what blocks the queue")
	m.command("at '02:14'")
	require.NotContains(t, m.notice.text, "needs a time")
}
