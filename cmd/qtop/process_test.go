package main

// This file runs many real processes at once, and puts hostile strings into
// every column that a verb prints.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// Sixteen processes requeue one letter at the same moment: one saga, and every
// loser is told who and when.
func TestRequeueRace(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	require.NoError(t, deadLetters(t.Context(), conn, 1, "HTTP_503"))
	dsn := db.DSN(operator(t, db))
	const n = 16
	type answer struct {
		code int
		out  string
	}
	answers := make([]answer, n)
	var wg sync.WaitGroup
	for i := range n {
		cmd := qtop(t, dsn, "requeue", "1", "--yes", "--reason", fmt.Sprintf("process %d", i), "-o", "json")
		cmd.Env = append(cmd.Env, fmt.Sprintf("QTOP_ACTOR=operator-%d", i))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		wg.Go(func() {
			_ = cmd.Run()
			answers[i] = answer{cmd.ProcessState.ExitCode(), out.String()}
		})
	}
	wg.Wait()
	won := 0
	for _, a := range answers {
		var res struct {
			Results []queue.Outcome `json:"results"`
			AuditID int64           `json:"audit_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(a.out), &res), a.out)
		require.Len(t, res.Results, 1, a.out)
		if res.Results[0].Outcome == "requeued" {
			won++
			require.Zero(t, a.code)
			require.NotZero(t, res.AuditID)
			continue
		}
		require.Equal(t, 1, a.code, a.out)
		require.Regexp(t, `already requeued by operator-\d+ at \d{4}-`, res.Results[0].Why.String())
	}
	require.Equal(t, 1, won)
	var sagas, jobs int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM webhook_delivery_sagas WHERE status <> 'DeadLettered'),
		(SELECT count(*) FROM webhook_delivery_jobs j JOIN dead_letter_requeues r ON r.new_saga_id = j.saga_id)`).Scan(&sagas, &jobs))
	require.Equal(t, 1, sagas)
	require.Zero(t, jobs)
}

// corpus is what must never reach a terminal as it is.
func corpus() []string {
	return []string{
		"\x1b[2J\x1b]0;owned\x07", "\x1b]52;c;aGFjaw==\x07", "\u009b31mC1", "\u202eevil\u202c\u2066x\u2069", "zero\u200bwidth\u200d\ufeff",
		"tag\U000e0041\U000e007f", "line\nbreak\r\ttab\b\x07\x7f", "a" + strings.Repeat("\u0301", 500), strings.Repeat("A", 1<<20),
		"\u2028\u2029\u00ad\u034f\u061c\u115f\u3164",
	}
}

// TestHostileStrings writes the corpus into every text column that the verbs
// print, and reads every verb in both forms: nothing but plain text comes out.
func TestHostileStrings(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	ctx := t.Context()
	require.NoError(t, deadLetters(ctx, conn, 2, "HTTP_500"))
	exec := func(sql string, args ...any) {
		_, err := conn.Exec(ctx, sql, args...)
		require.NoError(t, err, sql)
	}
	// The payload and config columns take anything; constraints that narrow the
	// others are the schema's own business and are dropped here.
	exec(`ALTER TABLE queue_heartbeat DROP CONSTRAINT queue_heartbeat_executor_id_check`)
	exec(`ALTER TABLE queue_host DROP CONSTRAINT queue_host_host_id_check`)
	exec(`DROP INDEX ix_queue_operator_action_target`)
	exec(`SET session_replication_role = replica`)
	for i, long := range corpus() {
		s := long[:min(len(long), 2000)] // the megabyte stands in two columns: enough to see that it is cut
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
		exec(`UPDATE events SET payload = jsonb_build_object('x', $1::text)`, long)
		exec(`UPDATE dead_letters SET payload_snapshot = jsonb_build_object('x', $1::text)`, long)
		exec(`INSERT INTO queue_operator_action (actor, action, target, reason, outcome) VALUES ('a', 'b', 'c', $1, 'd')`, long)
		exec(`INSERT INTO dot_config (key, value, description, updated_by) VALUES ($1, $2, $2, $2)`, fmt.Sprint("x", i, s), s)
		exec(`INSERT INTO queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds, stale_threshold_seconds,
			registered_by, owner_role, deregistered_by) VALUES ($1, 'Agent', ARRAY[$2::text], now() - interval '1 hour', 60, 60, $2, $2, $2)`, fmt.Sprint(s, i), s)
		exec(`INSERT INTO queue_alert_ack (alert_key, subject, severity, acked_by, comment, expires_at)
			SELECT alert_key, subject, 'critical', $1, $1, now() + interval '1 hour' FROM v_queue_alert WHERE subject = $2`, s, fmt.Sprint(s, i))
		exec(`INSERT INTO queue_host (host_id, instance, version, loops, progress) VALUES ($1, gen_random_uuid(), $2, ARRAY[$2::text], jsonb_build_object($2::text, '{}'::jsonb))`, fmt.Sprint(s, i), s)
		exec(`INSERT INTO queue_operator_action (actor, db_role, action, target, filter, reason, before, after, outcome)
			VALUES ($1, $1, $1, $1, $1, $1, to_jsonb($1::text), to_jsonb($1::text), $1)`, s)
		exec(`UPDATE queue_tick_worker SET last_result = to_jsonb($1::text) WHERE worker_name = 'config_expiry'`, s)
		exec(`UPDATE webhook_delivery_jobs SET response_excerpt = $1, worker_id = left($1, 200)`, s)
		exec(`UPDATE subscriptions SET event_type = left($1, 90), callback_url = left($1, 2000)`, s)
	}
	user := operator(t, db)
	for _, args := range [][]string{
		{"status"}, {"health"}, {"alerts"}, {"executors"}, {"hosts"}, {"dlq"}, {"dlq", "1"}, {"dlq-groups"}, {"flags"}, {"scheduler"}, {"audit"},
		{"requeue", "1", "--dry-run"}, {"flag", "set", "x0" + "\x1b[2J", "1", "--reason", "\x1b[2J", "--yes"},
		{"executor", "deregister", "\x1b]0;x\x07", "--reason", "\u202e", "--yes"}, {"dlq", "--filter", "\x1b[2J"}, {"ack", "\u009b2J", "--comment", "\x1b", "--yes"},
	} {
		for _, form := range []string{"table", "json"} {
			t.Run(strings.Trim(fmt.Sprintf("%q %s", args, form), "[]"), func(t *testing.T) {
				t.Parallel()
				cmd := qtop(t, db.DSN(user), append(slices.Clone(args), "-o", form)...)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				_ = cmd.Run()
				require.Contains(t, []int{0, 1, 2, 3}, cmd.ProcessState.ExitCode(), "%.300s", out.String())
				require.True(t, utf8.Valid(out.Bytes()))
				for i, r := range out.String() {
					if r != '\n' && queue.Unsafe(r) {
						t.Fatalf("it prints %U at %d: %.80q", r, i, out.String()[max(0, i-40):])
					}
				}
			})
		}
	}
}
