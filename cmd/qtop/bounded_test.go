package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// Answers have a bounded length, even if one executor has 10,000 domains.
func TestOutputsAreBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	for _, sql := range []string{
		"SET session_replication_role = replica", // without triggers, as an older release accepted such rows
		`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds,
			stale_threshold_seconds, registered_by) SELECT 'wide', 'DOT', array_agg('domain_with_a_rather_long_name_' || g), now(), 60, 300, 'test'
			FROM generate_series(1, 10000) g`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	run := func(args ...string) string {
		cmd := qtop(t, db.DSN(""), args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.NoError(t, cmd.Run(), "%v: %s", args, &errs)
		return out.String()
	}
	var rows []struct {
		ID        string   `json:"executor_id"`
		Domains   []string `json:"domain_scope"`
		Truncated []string `json:"truncated"`
	}
	text := run("executors", "--output", "json")
	require.NoError(t, json.Unmarshal([]byte(text), &rows))
	require.Less(t, len(text), 2*queue.FieldMost)
	for _, r := range rows {
		if r.ID == "wide" {
			require.Equal(t, []string{"domain_scope"}, r.Truncated)
			require.Greater(t, len(r.Domains), 1000)
			require.Equal(t, "domain_with_a_rather_long_name_1", r.Domains[0])
		} else {
			require.Empty(t, r.Truncated)
		}
	}
	for line := range strings.SplitSeq(run("executors", "--output", "table"), "\n") {
		require.Less(t, ansi.StringWidth(line), 3*queue.CellMost)
	}
	require.Contains(t, run("executors", "--output", "table"), "…")
	for _, format := range []string{"csv", "json", "jsonl"} {
		text := run("export", "executors", "--output", format)
		require.Less(t, len(text), 2*queue.FieldMost+20_000, format)
		require.Contains(t, text, map[bool]string{true: "…", false: `"truncated":["domain_scope"]`}[format == "csv"])
	}
}
