package views_test

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// An endpoint that was given up is no silence: its page and its line say what it is,
// how long it failed and what lifts it, and the Overview does not count it as silent.
func TestFailingEndpointIsTold(t *testing.T) {
	since := viewstest.Now().Add(-2 * time.Hour)
	a := queue.Alert{
		Key: queue.Clean("failing:7:2026-11-20T22:00:00.000000Z"), Kind: "failing", Subject: queue.Clean("failing:7"), Severity: "critical",
		Since: &since, AgeSeconds: 7200, Ratio: 1.02, State: "open",
	}
	e := env(theme.Options{})
	page := ansi.Strip(strings.Join(views.AlertPage(a, nil, e, 100).Lines, "\n"))
	for _, words := range []string{"suspended for", "2h 00m", "qtop endpoint resume 7"} {
		require.Contains(t, page, words)
	}
	require.NotContains(t, page, "silent")
	lines := strings.Join(views.Plainly(&queue.Snapshot{Alerts: []queue.Alert{a}}, e), "\n")
	require.Contains(t, lines, "FAILING webhook subscription 7, suspended, nobody has it")
	require.NotContains(t, lines, "SILENT")
}
