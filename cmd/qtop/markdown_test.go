package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

func TestCodeSpans(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "–", "   ": "–", "plain": "`plain`", "a|b": "`a\\|b`", "a`b": "`` a`b ``", "``": "``` `` ```", `a\|b`: "`a\\\\\\|b`",
		"@team <img src=x> [a](http://b)": "`@team <img src=x> [a](http://b)`", "two\nlines": "`two␊lines`",
		strings.Repeat("x", 301): "`" + strings.Repeat("x", 300) + "…(+1)`",
	} {
		require.Equal(t, want, code(queue.Clean(text)), text)
	}
}

// cells counts the pipes that separate cells in a row of a table, as GFM does:
// a pipe after an unpaired backslash is text.
func cells(row string) (n int) {
	for i := 0; i < len(row); i++ {
		switch row[i] {
		case '\\':
			i++
		case '|':
			n++
		}
	}
	return n
}

// Whatever text is in a row, each table of the report keeps its number of
// columns, and the report its number of lines.
func TestReportKeepsItsTables(t *testing.T) {
	t.Parallel()
	at, n, y := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC), int64(2), 3.0
	for _, bad := range []string{"fine", "|", `\|`, `\\|\`, "`|`", "``` | ```", "a\n## b\n| c |", "<br>|<script>", strings.Repeat("|`\\", 500), "\x1b[2J|\u202e"} {
		x := queue.Clean(bad)
		r := queue.Report{
			Database: x, Version: x, Login: x, Actor: x, Since: at, Until: at.Add(time.Hour), AsOf: at.Add(time.Hour),
			Silences: []queue.Silence{{Executor: x, LastBeatAt: &at, EndedAt: &at, Ended: queue.SilenceBeat, Acks: []queue.AlertAck{{AckedBy: x, Comment: x, ClearedReason: x, AckedAt: at}}}},
			Suspensions: []queue.SuspendedTime{
				{SubscriptionID: 7, Endpoint: x, Reason: "circuit", Since: at, By: x, Note: x},
				{SubscriptionID: 7, Endpoint: x, Reason: "operator", Since: at, By: x, EndedAt: &at, Ended: queue.SuspensionResumed, EndedBy: x},
				{SubscriptionID: 8, Endpoint: x, Reason: "circuit", Since: at, By: x, EndedAt: &at, Ended: queue.SuspensionSeen},
				{SubscriptionID: 8, Endpoint: x, Reason: "failing", Since: at, By: x, EndedAt: &at, Ended: queue.SuspensionExpired},
				{SubscriptionID: 9, Endpoint: x, Reason: "410", Since: at, By: x, Ended: queue.SuspensionUnknown},
			},
			Flags:      []queue.FlagChange{{At: at, Key: x, Before: x, After: x, By: x, Reason: x}},
			Operations: []queue.Operation{{ID: 1, Kind: "resolve", State: "paused", Filter: x, CreatedBy: x, Reason: x, StateBy: x, StateWhy: x}},
			Dead:       []queue.DeadStory{{Source: "job", Code: x, Endpoint: x, Domain: x, Arose: 5, Requeued: 3, Delivered: &n}},
			Marks:      []queue.Mark{{At: at, Label: x, By: x}},
			Curves:     []queue.Curve{{Metric: "waiting", Name: x, Points: []*float64{nil, &y}, Max: 3}},
			Actions:    []queue.AuditEntry{{At: at, Actor: x, DBRole: x, Action: x, Target: x, Filter: x, Reason: x, Outcome: x}},
			More:       map[string]int{"actions": 7},
		}
		text := reportMarkdown(r)
		require.Equal(t, 8, strings.Count(text, "\n## "), bad)
		_, first, _ := strings.Cut(text, "\n## ")
		require.True(t, strings.HasPrefix(first, "Operator actions"), "what people did comes first")
		require.NotContains(t, text, "\x1b")
		heads := 0
		for _, l := range strings.Split(text, "\n") {
			switch {
			case !strings.HasPrefix(l, "|"):
				heads = 0
			case heads == 0:
				heads = cells(l)
			default:
				require.Equal(t, heads, cells(l), "%q in %s", bad, l)
			}
		}
		require.Contains(t, text, "+7 more are left out.")
		require.Contains(t, text, "`·█`")
	}
}

// Neither the report nor qtop status writes the plural after a 1.
func TestOneIsSingular(t *testing.T) {
	t.Parallel()
	at, x := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC), queue.Clean("x")
	r := queue.Report{
		Database: x, Since: at, Until: at.Add(time.Hour), AsOf: at.Add(time.Hour), Silences: []queue.Silence{{Executor: x}},
		Suspensions: []queue.SuspendedTime{{Endpoint: x, Since: at}}, Flags: []queue.FlagChange{{At: at, Key: x}}, Operations: []queue.Operation{{ID: 1}},
		Dead: []queue.DeadStory{{Source: "job", Code: x, Arose: 1}}, Actions: []queue.AuditEntry{{At: at, Actor: x, Action: x}}, More: map[string]int{},
	}
	require.Contains(t, reportMarkdown(r), ", 1 dead letter arose.")
	require.Empty(t, viewstest.Plurals(reportMarkdown(r)))
	r.More = map[string]int{"acks": 1, "marks": 1, "actions": 1, "dead": 1}
	r.Marks = []queue.Mark{{At: at, Label: x}}
	text := reportMarkdown(r)
	for _, words := range []string{"+1 more is left out.", "+1 more acknowledgement is left out.", "≥1 dead letters arose"} {
		require.Contains(t, text, words)
	}
	require.Empty(t, viewstest.Plurals(text))
	var out strings.Builder
	s := viewstest.OneOfEach().Snapshot
	(&writer{out: &out, output: "table"}).statusTable(statusOf(s))
	require.Empty(t, viewstest.Plurals(out.String()))
}
