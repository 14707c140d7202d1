// Tests of idempotency keys from the producer to the handler: across a failover of the database,
// and in every type of handler.
package workerhost_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/sender"
)

// A producer that got no answer enqueues again on the promoted standby and gets the first job,
// whatever the status of that job. If the standby had not received the job, it is made once on
// the standby.
func TestKeysAfterAFailover(t *testing.T) {
	t.Parallel()
	w, primary := ownWorld(t, "queue.retry.schedule", "1h")
	backup := pgProgram(t, primary, "pg_basebackup")
	executor(t, w.admin, "host", "", 100)
	w.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	standby, server := w.copied(primary, backup, "-R")

	producer := func(s *embedded.Server) *enqueue.Producer {
		client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: s.DSN(embedded.Superuser, "postgres"), WorkConns: 1})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		return enqueue.New(client)
	}
	ask := func(p *enqueue.Producer, key string) (answer [2]string) {
		id, status, err := p.Put(t.Context(), enqueue.Job{Kind: key, Domain: "work", Executor: "DOT", Payload: json.RawMessage(`{"of": "` + key + `"}`), IdempotencyKey: key, MaxAttempts: 1}, 0)
		require.NoError(t, err, key)
		return [2]string{id, status}
	}
	emit := func(s *world) string {
		return s.text("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL, p_idempotency_key => 'e')")
	}
	const claimed = "FROM public.fn_job_claim('host', ARRAY[$1::text], 1) c"
	dies := "SELECT public.fn_job_fail(ARRAY[c.job_id], ARRAY[c.lease_token], '{TIMEOUT}', '{late}', '{false}') " + claimed
	replay := "SELECT public.fn_job_dead_letter_replay(array_agg(dead_letter_id), 'ann', 'test') FROM public.job_dead_letter WHERE job_kind = $1"
	states := map[string][]string{
		"queued":    nil,
		"leased":    {"SELECT c.job_id " + claimed},
		"succeeded": {"SELECT public.fn_job_ack(ARRAY[c.job_id], ARRAY[c.lease_token]) " + claimed},
		"dead":      {dies},
		"replayed":  {dies, replay},
		"cancelled": {"SELECT public.fn_job_cancel(array_agg(job_id), 'ann', 'test') FROM public.job_queue WHERE job_kind = $1"},
	}
	before := producer(primary)
	want := map[string][2]string{}
	for key, steps := range states {
		require.Empty(t, ask(before, key)[1], "it is new")
		for _, sql := range steps {
			w.exec(sql, key)
		}
		want[key] = ask(before, key)
		require.NotEmpty(t, want[key][1])
	}
	require.Contains(t, emit(w), `"created": true`)
	event := emit(w)

	standby.becomes(1, "SELECT (pg_last_wal_replay_lsn() >= $1::pg_lsn)::int", w.text("SELECT pg_current_wal_insert_lsn()"))
	standby.exec("ALTER SYSTEM SET primary_conninfo = ''") // the standby receives no more changes
	standby.exec("SELECT pg_reload_conf()")
	standby.becomes(0, "SELECT count(*)::int FROM pg_stat_wal_receiver")
	require.Empty(t, ask(before, "lost")[1])
	require.Equal(t, "true", standby.text("SELECT pg_promote()"))
	eventually(t, func() bool { return standby.text("SELECT pg_is_in_recovery()") == "false" }, "no promotion")

	after := producer(server)
	for key := range states {
		require.Equal(t, want[key], ask(after, key), key)
	}
	require.Equal(t, event, emit(standby))
	lost := ask(after, "lost")
	require.Empty(t, lost[1], "it is made on the standby")
	require.Equal(t, [2]string{lost[0], "queued"}, ask(after, "lost"), "once")
	require.Equal(t, len(states)+2, standby.int("SELECT count(*)::int FROM public.v_job"), "each has one job, one of them its replay, and what was lost")
	require.Equal(t, 1, standby.int("SELECT count(*)::int FROM public.event_outbox"))
}

// A claim that waits returns the jobs that are committed meanwhile, with their key and token.
func TestKeysOfJobsThatComeDuringAClaim(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: w.dsn, WorkConns: 1})
	require.NoError(t, err)
	defer client.Close()
	claim := func() ([]work.Job, error) {
		return work.New(client).JobClaim(t.Context(), work.Claim{Executor: "host", Kinds: []string{"pay"}, Most: 10})
	}
	put := func(scope string) string {
		return w.text(`SELECT public.fn_job_enqueue('pay', 'media', 'DOT', p_max_attempts => 1, p_idempotency_key => 'order-17', p_scope => $1) ->> 'job_id'`, scope)
	}
	first := put("workflow_admin")
	dead, err := claim()
	require.NoError(t, err)
	require.Len(t, dead, 1)
	w.exec("SELECT public.fn_job_fail(ARRAY[$1::uuid], ARRAY[$2::uuid], '{TIMEOUT}', '{late}', '{false}')", dead[0].ID, dead[0].Token)
	put("event_ingest_writer") // a queued job, so that the claim has to wait for the lock below

	holder, err := w.admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(context.Background()) }()
	_, err = holder.Exec(t.Context(), "SELECT 1 FROM public.job_subscription FOR UPDATE")
	require.NoError(t, err)
	type answer struct {
		jobs []work.Job
		err  error
	}
	claimed := make(chan answer, 1)
	go func() {
		jobs, err := claim()
		claimed <- answer{jobs, err}
	}()
	eventually(t, func() bool {
		return w.int("SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	}, "the claim does not wait")
	w.exec("SELECT public.fn_job_dead_letter_replay(array_agg(dead_letter_id), 'ann', 'test') FROM public.job_dead_letter")
	second := put("queue_viewer")
	require.NoError(t, holder.Commit(t.Context()))
	got := <-claimed
	require.NoError(t, got.err)
	require.Len(t, got.jobs, 3)
	roots := map[string]bool{}
	for _, j := range got.jobs {
		require.Equal(t, "order-17", j.IdempotencyKey)
		roots[j.Root.String()] = true
	}
	require.True(t, roots[first], "root of the replay")
	require.True(t, roots[second])
}

// given is what a handler received in one attempt.
type given struct {
	handler.Job
	token string // the idempotency token: a header, a variable or a field
}

// Go, URL and command handlers receive the producer's key and the idempotency token. The token is
// the id of the first job in a chain of replays, also when two scopes use the same key.
func TestKeysReachEveryHandler(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	var mu sync.Mutex
	var all []given
	var healed atomic.Bool
	keep := func(line []byte, token string) {
		var job handler.Job
		if err := json.Unmarshal(line, &job); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, given{job, token})
	}
	url := receive(t, func(rw http.ResponseWriter, _ *http.Request) {
		if !healed.Load() {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	dir := t.TempDir()
	lines, pass := filepath.Join(dir, "lines"), filepath.Join(dir, "pass")
	s := sender.New(sender.Config{Version: "test", Allow: loopback(), PlainHTTP: loopback(), Concurrency: 4})
	t.Cleanup(s.Close)
	handlers, err := handler.Parse([]handler.Spec{
		{Kind: "url", URL: url.URL},
		{Kind: "command", Command: []string{"/bin/sh", "-c", `read -r job; echo "$QTOP_ROOT_JOB_ID $job" >> "$0"; test -e "$1"`, lines, pass}},
	}, s)
	require.NoError(t, err)
	handlers["go"] = handler.Func(func(_ context.Context, j handler.Job) error {
		line, err := j.JSON()
		if err != nil {
			return err
		}
		keep(line, j.RootID)
		if !healed.Load() {
			return errors.New("not yet")
		}
		return nil
	})
	w.jobs(workerhost.Options{}, handlers)

	const n = 6 // number of kinds × scopes
	firsts := map[string]string{}
	for _, kind := range []string{"go", "url", "command"} {
		for _, scope := range []string{"event_ingest_writer", "workflow_admin"} {
			firsts[kind+scope] = w.text(`SELECT public.fn_job_enqueue($1, 'media', 'DOT', jsonb_build_object('of', $2::text), p_max_attempts => 1,
				p_idempotency_key => 'order-17', p_scope => $2) ->> 'job_id'`, kind, scope)
		}
	}
	for round := range 2 {
		w.becomes(n, "SELECT count(*)::int FROM public.job_dead_letter WHERE resolved_at IS NULL")
		if round == 1 {
			healed.Store(true)
			require.NoError(t, os.WriteFile(pass, nil, 0o600))
		}
		w.exec("SELECT public.fn_job_dead_letter_replay(array_agg(dead_letter_id), 'ann', 'test') FROM public.job_dead_letter WHERE resolved_at IS NULL")
	}
	w.becomes(n, jobsOf, "succeeded")
	for _, r := range url.all() {
		keep(r.body, r.header.Get("Idempotency-Key"))
	}
	written, err := os.ReadFile(lines)
	require.NoError(t, err)
	for scan := bufio.NewScanner(bytes.NewReader(written)); scan.Scan(); {
		token, line, _ := strings.Cut(scan.Text(), " ")
		keep([]byte(line), token)
	}
	require.Len(t, all, 3*n)
	ids := map[string]bool{}
	for _, g := range all {
		var payload struct{ Of string }
		require.NoError(t, json.Unmarshal(g.Payload, &payload))
		first := firsts[g.Kind+payload.Of]
		require.Equal(t, []string{first, first, "order-17"}, []string{g.RootID, g.token, g.IdempotencyKey}, "%s of %s", g.Kind, payload.Of)
		ids[g.ID] = true
	}
	require.Len(t, ids, 3*n, "each replay is a separate job")
}
