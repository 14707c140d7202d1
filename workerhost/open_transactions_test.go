// Tests of routing while transactions stay open, after a failover and after a restore.
package workerhost_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/workerhost"
)

// stream is a database on a separate server to which the test writes events, and the receiver of
// these events.
type stream struct {
	*world
	r       *receiver
	next    int               // number of events so far
	written map[int]time.Time // commit time of the transaction of each event
}

const writeEvent = "INSERT INTO public.events (event_type, payload) VALUES ('order', to_jsonb($1::int))"

func newStream(t *testing.T) *stream {
	t.Helper()
	w, server := ownWorld(t, "queue.notify.bridge_enabled", "true")
	w.exec("ALTER SYSTEM SET max_prepared_transactions = 2")
	require.NoError(t, server.Restart(t.Context()))
	w.admin.Reset()
	eventually(t, func() bool { return w.admin.Ping(t.Context()) == nil }, "no restart")
	s := &stream{w, receive(t, ok), 0, map[int]time.Time{}}
	w.subscribe("order", s.r.URL, nil)
	w.run(workerhost.Options{Loops: []string{"webhook_router", "saga_orchestrator", "webhook_worker"}}).listens()
	return s
}

// write commits one event and records when.
func (s *stream) write() {
	s.t.Helper()
	s.next++
	s.written[s.next] = time.Now()
	s.exec(writeEvent, s.next)
}

// p99 returns the 99th percentile of the time from the commit of an event to its request, over
// the committed events after the number first.
func (s *stream) p99(first int) time.Duration {
	var all []time.Duration
	for _, g := range s.r.all() {
		var n int
		require.NoError(s.t, json.Unmarshal(g.body, &n))
		if at, committed := s.written[n]; committed && n > first {
			all = append(all, g.at.Sub(at))
		}
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// Twenty logins hold transactions open, one of them prepared. The events of all other
// transactions are posted as soon as in a second database without open transactions. The events
// of the open transactions are posted when these end, each event once. The times are only logged,
// because they depend on the machine and grow with the row versions that an open transaction
// keeps alive.
func TestWebhooksBesideOpenTransactions(t *testing.T) {
	t.Parallel()
	full := os.Getenv("QTOP_TEST_FULL") != ""
	phase := 3 * time.Second
	if full {
		phase = time.Minute
	}
	clean, w := newStream(t), newStream(t)
	produce := func(during time.Duration) {
		every := time.NewTicker(5 * time.Millisecond)
		defer every.Stop()
		for until := time.Now().Add(during); time.Now().Before(until); <-every.C {
			clean.write()
			w.write()
		}
	}
	produce(time.Second) // fills caches and opens connections
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
			w.next++
			theirs = append(theirs, w.next)
			if i == 2 { // PostgreSQL cannot prepare a transaction that has sent a NOTIFY, so the wake signal is off here
				run("SET LOCAL qtop.doorbell = on")
			}
			run("SAVEPOINT s")
			run(writeEvent, w.next)
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
		FROM public.fn_routing_held() WHERE event_domain = 'webhook' AND usename ~ '^open_'`), "sessions that have written events are listed")
	first := [2]int{clean.next, w.next}
	began := time.Now()
	produce(phase)
	rate := float64(w.next-first[1]) / time.Since(began).Seconds()
	eventually(t, func() bool { return clean.r.count() >= clean.next && w.r.count() >= w.next-len(theirs) }, "some committed events are not posted")
	require.Equal(t, w.next-len(theirs), w.r.count(), "while they are open")
	alone, beside := clean.p99(first[0]), w.p99(first[1])
	ended := time.Now()
	for _, end := range open {
		require.NoError(t, end())
	}
	eventually(t, func() bool { return w.r.count() >= w.next }, "the events of the ended transactions are not posted")
	var last time.Time
	ids, events := map[string]bool{}, map[string]bool{}
	for _, g := range w.r.all() {
		ids[g.id], events[string(g.body)] = true, true
		if g.at.After(last) {
			last = g.at
		}
	}
	w.becomes(w.next, completed)
	require.Equal(t, []int{w.next, w.next, w.next}, []int{w.r.count(), len(ids), len(events)}, "each once")
	t.Logf("%.0f events/s; p99 of commit to POST: %v alone, %v beside 20 open transactions, ratio %.2f; theirs within %v of their end",
		rate, alone.Round(time.Millisecond), beside.Round(time.Millisecond), float64(beside)/float64(alone), last.Sub(ended).Round(time.Millisecond))
	if full {
		require.Less(t, last.Sub(ended), time.Second)
	}
}

// login makes a login that may write events.
func (w *world) login(name string) string {
	w.exec("CREATE ROLE " + pgx.Identifier{name}.Sanitize() + " LOGIN IN ROLE event_ingest_writer")
	cfg := w.admin.Config().ConnConfig
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s", cfg.Host, cfg.Port, name, cfg.Database)
}

// A promoted standby, and a restore of an earlier point in time, continue from the rows that they
// have: no event is skipped or routed twice, also in the middle of a batch and with a transaction
// that was open.
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
	w.exec(route, 1) // stops after one event, in the middle of the batch
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
