package main

// The runbook is followed in a database in which its incidents have happened.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
)

// newRunbook returns a reader of docs/runbook.md: a login with every role, in the database of furnish.
func newRunbook(t *testing.T) *reader {
	t.Helper()
	f := furnish(t)
	dsn := f.db.DSN(everyRoleOf(t, f.db))
	r := newReader(t, dsn)
	exec := func(t *testing.T, sql string) {
		t.Helper()
		_, err := f.conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	qtop := func(t *testing.T, args ...string) {
		t.Helper()
		code, out, errs := jsonRun(t, append(args, "--dsn", dsn)...)
		require.Zero(t, code, "%v: %s %s", args, out, errs)
	}
	exec(t, "UPDATE public.iu_notification_pending SET actor_ref = 'importer' WHERE actor_ref IS NULL") // furnish made it fail so
	exec(t, "ALTER TABLE public.iu_notification_pending ALTER actor_ref SET NOT NULL")
	r.names = map[string]string{"0190a1b2-1111-4222-8333-0123456789ab": f.lease, "event:4711": f.event}
	for _, verb := range []string{"qtop session cancel ", "qtop session terminate "} {
		r.names[verb+"4711"] = verb + holder(t, dsn)
	}
	nothing := func() {}
	r.incidents = map[string]func(*testing.T) func(){
		"qtop ops resume 1": func(t *testing.T) func() { // a brake pauses an operation like a person
			qtop(t, "ops", "pause", "1", "--reason", "r", "--yes")
			return nothing
		},
		"qtop requeue --filter 'source:event": func(t *testing.T) func() {
			exec(t, `INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
				SELECT id, to_jsonb(e), 'failed', 'ROUTE_22P02', 'x', event_domain, 'iu_outbound_default' FROM public.event_outbox e LIMIT 1`)
			return nothing
		},
		"qtop adopt": func(t *testing.T) func() {
			exec(t, "UPDATE public.queue_identity SET database_oid = database_oid::bigint + 1")
			return func() { exec(t, "UPDATE public.queue_identity SET database_oid = database_oid::bigint - 1") }
		},
		"qtop flag set queue.heartbeat.stale_threshold_seconds": func(t *testing.T) func() {
			qtop(t, "flag", "set", "queue.heartbeat.stale_threshold_seconds", "1000000", "--reason", "r", "--yes")
			return nothing
		},
	}
	return r
}

// incident does what must happen before a block is followed, and returns what must happen after it.
func (r *reader) incident(t *testing.T, b docBlock) (after func()) {
	t.Helper()
	for _, command := range slices.Collect(maps.Keys(r.incidents)) {
		if strings.Contains(b.text, command) {
			happen := r.incidents[command]
			delete(r.incidents, command)
			return happen(t)
		}
	}
	return func() {}
}

// holder opens a session whose statement runs in a transaction with an id, and returns its pid.
func holder(t *testing.T, dsn string) string {
	t.Helper()
	conn, err := pgsession.Connect(t.Context(), dsn)
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = tx.Exec(ctx, "SELECT pg_sleep(3600)")
		close(done)
	}()
	t.Cleanup(func() { cancel(); <-done; _ = conn.Close(context.Background()) })
	return fmt.Sprint(conn.PgConn().PID())
}

// everyRoleOf returns a login of this database that has every role of a person or a program.
func everyRoleOf(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	return pgtest.Login(t, db, "queue_viewer", "dead_letter_operator", "workflow_admin", "subscription_admin", "event_ingest_writer",
		"dot_executor", "router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner")
}

// everyRole returns the DSN of a login that has every role of a person or a
// program and may create tables. The database is installed and has dead letters
// of webhooks and jobs.
func everyRole(t *testing.T) string {
	t.Helper()
	db := pgtest.New(t)
	login := everyRoleOf(t, db)
	conn := db.Conn(t, "")
	_, err := conn.Exec(t.Context(), fmt.Sprintf("GRANT CREATE ON SCHEMA public TO %q", login))
	require.NoError(t, err)
	require.NoError(t, deadLetters(t.Context(), conn, 12, "HTTP_503"))
	require.NoError(t, deadJobs(t.Context(), conn, 3, "mail.render", "mail"))
	return db.DSN(login)
}
