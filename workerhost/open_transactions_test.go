// Routing beside transactions that stay open, after a failover and after a restore.
package workerhost_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/workerhost"
)

// Twenty logins hold transactions open, one of them prepared: the events of
// everybody else are posted as if they were not there, theirs when they end, each
// once.
func TestWebhooksBesideOpenTransactions(t *testing.T) {
	t.Parallel()
	phase := 3 * time.Second
	if os.Getenv("QTOP_TEST_FULL") != "" {
		phase = time.Minute
	}
	w, server := ownWorld(t, "queue.notify.bridge_enabled", "true")
	w.exec("ALTER SYSTEM SET max_prepared_transactions = 2")
	require.NoError(t, server.Restart(t.Context()))
	w.admin.Reset()
	eventually(t, func() bool { return w.admin.Ping(t.Context()) == nil }, "no restart")
	r := receive(t, ok)
	w.subscribe("order", r.URL, nil)
	h := w.run(workerhost.Options{Loops: []string{"webhook_router", "saga_orchestrator", "webhook_worker"}})
	h.listens()

	const write = "INSERT INTO public.events (event_type, payload) VALUES ('order', to_jsonb($1::int))"
	written := map[int]time.Time{} // when its transaction was committed
	var mu sync.Mutex
	next := 0
	commit := func(n int, do func() error) {
		t.Helper()
		mu.Lock()
		written[n] = time.Now()
		mu.Unlock()
		require.NoError(t, do())
	}
	// took is how long each event from first on took to its receiver.
	took := func(first int) (all []time.Duration) {
		for _, g := range r.all() {
			var n int
			require.NoError(t, json.Unmarshal(g.body, &n))
			if n > first {
				all = append(all, g.at.Sub(written[n]))
			}
		}
		slices.Sort(all)
		return all
	}
	p99 := func(all []time.Duration) time.Duration { return all[len(all)*99/100] }
	produce := func() []time.Duration {
		first := next
		every := time.NewTicker(5 * time.Millisecond)
		defer every.Stop()
		for until := time.Now().Add(phase); time.Now().Before(until); <-every.C {
			next++
			commit(next, func() error { _, err := w.admin.Exec(t.Context(), write, next); return err })
		}
		eventually(t, func() bool { return len(took(first)) >= next-first }, "all that is committed is posted")
		return took(first)
	}

	clean := produce()
	var open []func() error
	var theirs []int
	for i := range 20 {
		conn, err := pgsession.Connect(t.Context(), w.login(fmt.Sprintf("open_%d", i)))
		require.NoError(t, err)
		defer func() { _ = conn.Close(context.Background()) }()
		run := func(sql string, args ...any) {
			_, err := conn.Exec(t.Context(), sql, args...)
			require.NoError(t, err)
		}
		run("BEGIN")
		switch i % 3 {
		case 0:
			run("SELECT 1")
		case 1:
			run("SELECT pg_current_xact_id()")
		default:
			next++
			theirs = append(theirs, next)
			if i == 2 { // what notifies cannot be prepared
				run("SET LOCAL qtop.doorbell = on")
			}
			run("SAVEPOINT s")
			run(write, next)
			run("RELEASE s")
		}
		end := "COMMIT"
		if i == 2 {
			run("PREPARE TRANSACTION 'held'")
			end = "COMMIT PREPARED 'held'"
		}
		open = append(open, func() error { _, err := conn.Exec(t.Context(), end); return err })
	}
	w.exec(`DO $$ BEGIN EXECUTE replace(pg_get_functiondef('public.fn_routing_held()'::regprocedure), '1 minute', '0'); END $$`)
	require.Equal(t, "5 1 prepared transaction held", w.text(`SELECT concat_ws(' ', count(pid), count(*) FILTER (WHERE pid IS NULL), max(program) FILTER (WHERE pid IS NULL))
		FROM public.fn_routing_held() WHERE event_domain = 'webhook' AND usename ~ '^open_'`), "who has written events is told")
	held := produce()
	require.Len(t, r.all(), next-len(theirs), "while they are open")
	ended := time.Now()
	for _, n := range theirs {
		commit(n, func() error { return nil })
	}
	for _, end := range open {
		require.NoError(t, end())
	}
	eventually(t, func() bool { return r.count() >= next }, "theirs are posted when they end")
	var last time.Time
	ids, events := map[string]bool{}, map[string]bool{}
	for _, g := range r.all() {
		ids[g.id], events[string(g.body)] = true, true
		if g.at.After(last) {
			last = g.at
		}
	}
	w.becomes(next, completed)
	require.Equal(t, []int{next, next, next}, []int{r.count(), len(ids), len(events)}, "each once")
	t.Logf("p99 of commit to POST: %v alone, %v beside 20 open transactions, ratio %.2f; theirs within %v of their end",
		p99(clean), p99(held), float64(p99(held))/float64(p99(clean)), last.Sub(ended))
}

// login makes a login that may write events.
func (w *world) login(name string) string {
	w.exec("CREATE ROLE " + pgx.Identifier{name}.Sanitize() + " LOGIN IN ROLE event_ingest_writer")
	cfg := w.admin.Config().ConnConfig
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s", cfg.Host, cfg.Port, name, cfg.Database)
}

// A promoted standby and a restore of an earlier point go on from what they have:
// nothing is skipped, nothing is taken twice, also in the middle of a batch and with
// a transaction that was open.
func TestRoutingAfterFailoverAndRestore(t *testing.T) {
	t.Parallel()
	w, primary := ownWorld(t)
	backup := pgProgram(t, primary, "pg_basebackup")
	w.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	w.subscribe("order", "http://127.0.0.1:1/", nil)
	const route = "SELECT public.fn_webhook_router_run($1), public.fn_iu_route_worker_run('iu_outbound_default', $1)"
	write := func(x *world, n int) {
		for range n {
			x.exec("INSERT INTO public.events (event_type, payload) VALUES ('order', '1')")
			x.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)")
		}
	}
	w.exec(route, 10)
	tx, err := w.admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	for _, sql := range []string{
		"INSERT INTO public.events (event_type, payload) VALUES ('order', '1')",
		"SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)",
	} {
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	write(w, 5)
	w.exec(route, 2)

	exact := func(s *world, n int) {
		t.Helper()
		for range 10 {
			s.exec(route, 3)
		}
		want := fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d %[1]d %[1]d", n)
		require.Equal(t, want, s.text(`SELECT concat_ws(' ', (SELECT count(*) FROM public.events), (SELECT count(*) FROM public.webhook_delivery_sagas),
			(SELECT events_seen FROM public.router_offsets), (SELECT count(*) FROM public.event_outbox), (SELECT count(DISTINCT event_id) FROM public.iu_route_attempt),
			(SELECT events_seen FROM public.iu_route_worker_cursor WHERE event_domain = 'iu'))`))
	}
	earlier, _ := w.copied(primary, backup)
	standby, _ := w.copied(primary, backup, "-R")
	write(w, 3)
	w.exec(route, 1) // in the middle of the batch
	require.NoError(t, tx.Commit(t.Context()))
	write(w, 2)
	w.exec(route, 4)
	standby.becomes(11, "SELECT count(*)::int FROM public.events")
	standby.becomes(w.int("SELECT events_seen::int FROM public.iu_route_worker_cursor WHERE event_domain = 'iu'"),
		"SELECT events_seen::int FROM public.iu_route_worker_cursor WHERE event_domain = 'iu'")
	require.Equal(t, "true", standby.text("SELECT pg_promote()"))
	eventually(t, func() bool { return standby.text("SELECT pg_is_in_recovery()") == "false" }, "no promotion")
	for _, s := range []*world{earlier, standby} {
		write(s, 4)
	}
	exact(earlier, 9)
	exact(standby, 15)
	exact(w, 11)
}
