// A webhook-id always belongs to the same payload, whatever happens to the database: a receiver
// that ignores repeated ids loses nothing.

package schema_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// contents is what a receiver has got: the payload of each webhook-id.
type contents map[string]string

// deliver emits n events with from in their payload, and gives all due deliveries to the receiver.
func (c contents) deliver(t *testing.T, pool *pgxpool.Pool, from string, n int) {
	t.Helper()
	emitAll(t, pool, from, n)
	c.take(t, pool)
}

// emitAll writes n events and waits until each has a job.
func emitAll(t *testing.T, pool *pgxpool.Pool, from string, n int) {
	t.Helper()
	ctx := context.Background()
	_, err := pool.Exec(ctx, `INSERT INTO public.events (event_type, payload) SELECT 'order', jsonb_build_object('from', $1::text, 'n', i) FROM generate_series(1, $2::int) i`, from, n)
	require.NoError(t, err)
	eventually(t, "all are routed", func() bool {
		for _, sql := range []string{"SELECT public.fn_webhook_router_run(100000)", "SELECT public.fn_saga_orchestrator_run(100000)"} {
			_, err := pool.Exec(ctx, sql)
			require.NoError(t, err)
		}
		var open bool
		require.NoError(t, pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM public.events e WHERE e.payload ->> 'from' = $1 AND NOT EXISTS
			(SELECT FROM public.webhook_delivery_jobs j JOIN public.webhook_delivery_sagas s ON s.id = j.saga_id WHERE s.event_id = e.id))`, from).Scan(&open))
		return !open
	})
}

// take claims all due deliveries and gives them to the receiver, which fails the test if a known id
// has another payload.
func (c contents) take(t *testing.T, pool *pgxpool.Pool) (taken []lease) {
	t.Helper()
	for {
		leases, err := tryClaim(pool, 10000)
		require.NoError(t, err)
		if len(leases) == 0 {
			return taken
		}
		for _, l := range leases {
			if before, seen := c[l.WebhookID]; seen {
				require.Equal(t, before, l.Payload, "%s stands for two contents", l.WebhookID)
			}
			c[l.WebhookID] = l.Payload
		}
		taken = append(taken, leases...)
	}
}

// has requires that the receiver has n different payloads with this from.
func (c contents) has(t *testing.T, from string, n int) {
	t.Helper()
	got := map[string]bool{}
	for _, payload := range c {
		if strings.Contains(payload, fmt.Sprintf("%q", from)) {
			got[payload] = true
		}
	}
	require.Len(t, got, n, "%s: a receiver that drops what it has seen lost some", from)
}

const orderHook = "INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('order', 'http://127.0.0.1:1/hook', true, true)"

func TestWebhookIDStandsForOneContent(t *testing.T) {
	t.Parallel()
	n := 500
	if full() {
		n = 20000
	}
	seen := contents{}
	made := func(db *pgtest.DB) *pgxpool.Pool {
		pool := db.Pool(t, "")
		_, err := pool.Exec(t.Context(), orderHook)
		require.NoError(t, err)
		return pool
	}
	one, two := pgtest.New(t), pgtest.New(t)
	a, b := made(one), made(two)
	seen.deliver(t, a, "one", n)
	seen.deliver(t, b, "two", n)

	// The copy is the state to which a restore goes back later.
	a.Reset()
	past := one.Clone(t)
	seen.deliver(t, a, "one, lost by the restore", n)
	c := past.Pool(t, "")
	_, err := c.Exec(t.Context(), "SELECT public.fn_queue_adopt('keep', current_database(), 'ann', 'restored', false)")
	require.NoError(t, err)
	_, err = c.Exec(t.Context(), "SELECT public.fn_dot_config_set('webhook.slow_start.enabled', 'false', 'ann', 'a backlog is what is meant')")
	require.NoError(t, err)
	seen.deliver(t, c, "restored", n)

	b.Reset()
	require.NoError(t, schema.Down(t.Context(), two.DSN(""), schema.DownOptions{Discard: true}, nil))
	require.NoError(t, schema.Up(t.Context(), two.DSN(""), nil))
	seen.deliver(t, made(two), "installed again", n)

	for _, from := range []string{"one", "two", "one, lost by the restore", "restored", "installed again"} {
		seen.has(t, from, n)
	}
	require.Len(t, seen, 5*n)
}

// A standby that lags behind is promoted while the old primary goes on sending. Both give the same
// numbers to different events, and both send the deliveries that waited. Each requeues the same
// dead letters, which keep their ids.
func TestWebhookIDOfAPromotedStandby(t *testing.T) {
	t.Parallel()
	pgtest.NotHostile(t, "its servers are copies of one of its own")
	ctx := context.Background()
	n := 100
	if full() {
		n = 10000
	}
	dir, err := os.MkdirTemp("/tmp", "qtop-ids-") //nolint:usetesting // the server's user must reach it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // for the server's user
	start := func(o embedded.Options) *embedded.Server {
		s, err := embedded.Start(ctx, o)
		require.NoError(t, err)
		return s
	}
	pool := func(s *embedded.Server) *pgxpool.Pool {
		config, err := pgsession.PoolConfig(s.DSN("postgres", "postgres"))
		require.NoError(t, err)
		p, err := pgxpool.NewWithConfig(ctx, config)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		return p
	}
	origin := start(embedded.Options{Test: true, Dir: dir})
	require.NoError(t, schema.Up(ctx, origin.DSN("postgres", "postgres"), nil))
	seen := contents{}
	p := pool(origin)
	_, err = p.Exec(ctx, orderHook)
	require.NoError(t, err)
	_, err = p.Exec(ctx, "UPDATE public.subscriptions SET max_attempts = 1; UPDATE public.dot_config SET value = '0' WHERE key = 'webhook.circuit_failures'")
	require.NoError(t, err)
	emitAll(t, p, "dead", n)
	var failed []map[string]any
	for _, l := range seen.take(t, p) {
		failed = append(failed, result(l, "HTTP_500"))
	}
	_, err = tryReport(p, failed...)
	require.NoError(t, err)
	_, err = p.Exec(ctx, "SELECT public.fn_saga_orchestrator_run(100000)")
	require.NoError(t, err)
	emitAll(t, p, "waiting", n)
	p.Close()
	require.NoError(t, origin.Stop(ctx))

	primary, standby := start(embedded.Options{Test: true, Seed: dir}), start(embedded.Options{Test: true, Seed: dir})
	t.Cleanup(func() { _, _ = primary.Stop(ctx), standby.Stop(ctx) })
	require.NoError(t, os.WriteFile(filepath.Join(standby.DataDir(), "standby.signal"), nil, 0o644)) //nolint:gosec // the server runs as another user
	require.NoError(t, standby.Restart(ctx))
	require.Len(t, seen, n)
	lagging := pool(standby)
	last := map[string]int64{}
	for from, p := range map[string]*pgxpool.Pool{"primary": pool(primary), "promoted": lagging} {
		if from == "promoted" {
			_, err = p.Exec(ctx, "SELECT pg_promote()")
			require.NoError(t, err)
		}
		seen.deliver(t, p, from, n)
		require.Len(t, seen, map[bool]int{true: 3 * n, false: 4 * n}[len(last) == 0], "what waited has one id for both")
		ids := len(seen)
		var requeued int
		require.NoError(t, p.QueryRow(ctx, "SELECT (public.fn_dead_letter_requeue(array_agg(dead_letter_id), 'ann', 'again', false) ->> 'requeued')::int FROM public.dead_letter_open").Scan(&requeued))
		require.Equal(t, n, requeued)
		_, err = p.Exec(ctx, "SELECT public.fn_saga_orchestrator_run(100000)")
		require.NoError(t, err)
		require.Len(t, seen.take(t, p), n)
		require.Len(t, seen, ids, "a requeue inherits the id")
		var id int64
		require.NoError(t, p.QueryRow(ctx, "SELECT max(id) FROM public.webhook_delivery_sagas WHERE requeued_from_dead_letter_id IS NULL").Scan(&id))
		last[from] = id
	}
	require.Less(t, last["promoted"]-last["primary"], int64(100), "their numbers are alike")
	for _, from := range []string{"dead", "waiting", "primary", "promoted"} {
		seen.has(t, from, n)
	}
	require.Len(t, seen, 4*n)
}

// A saga that is open at the upgrade keeps the id that its receiver may have seen, also when it is
// requeued later.
func TestWebhookIDKeptByAnUpgrade(t *testing.T) {
	t.Parallel()
	db := pgtest.Released(t)
	pool := db.Pool(t, "")
	ctx := t.Context()
	_, err := pool.Exec(ctx, "UPDATE public.subscriptions SET max_attempts = 1, rate_limit_per_second = NULL; DELETE FROM public.webhook_endpoint_suspensions; UPDATE public.dot_config SET value = 'true' WHERE key = 'webhook.worker.enabled'")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "INSERT INTO public.events (event_type, payload) SELECT s.event_type, '{\"alive\": true}' FROM public.subscriptions s WHERE s.active AND s.verified LIMIT 1")
	require.NoError(t, err)
	const alive = "SELECT count(*)::int FROM public.webhook_delivery_sagas s JOIN public.events e ON e.id = s.event_id WHERE e.payload ? 'alive'"
	eventually(t, "it is routed", func() bool {
		var n int
		_, err := pool.Exec(ctx, "SELECT public.fn_webhook_router_run(100)")
		require.NoError(t, err)
		require.NoError(t, pool.QueryRow(ctx, alive).Scan(&n))
		return n > 0
	})
	old := map[string]bool{}
	rows, err := pool.Query(ctx, "SELECT 'qtop_' || s.event_id || '_' || s.subscription_id FROM public.webhook_delivery_sagas s JOIN public.events e ON e.id = s.event_id WHERE e.payload ? 'alive'")
	require.NoError(t, err)
	for rows.Next() {
		var id string
		require.NoError(t, rows.Scan(&id))
		old[id] = true
	}
	require.NoError(t, rows.Err())
	up(t, db, schema.Current())
	pool.Reset()
	claimed := func() (got []lease) {
		t.Helper()
		_, err := pool.Exec(ctx, "SELECT public.fn_saga_orchestrator_run(100)")
		require.NoError(t, err)
		leases, err := tryClaim(pool, 100)
		require.NoError(t, err)
		for _, l := range leases {
			if strings.Contains(l.Payload, "alive") {
				require.True(t, old[l.WebhookID], l.WebhookID)
				got = append(got, l)
			}
		}
		return got
	}
	first := claimed()
	require.Len(t, first, len(old))
	for _, l := range first {
		_, err := tryReport(pool, result(l, "HTTP_500"))
		require.NoError(t, err)
	}
	require.Empty(t, claimed())
	_, err = pool.Exec(ctx, "SELECT public.fn_dead_letter_requeue(array_agg(d.id), 'ann', 'again', false) FROM public.dead_letters d WHERE d.payload_snapshot ? 'alive'")
	require.NoError(t, err)
	require.Len(t, claimed(), len(old), "a requeue inherits the id")
}

// The webhook-id of a saga is set once, and no role can change it.
func TestWebhookIDNeverChanges(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 1)
	h.route()
	refused(t, "42501", h.asOwner("UPDATE public.webhook_delivery_sagas SET status = 'InProgress', next_attempt_at = NULL, webhook_id = gen_random_uuid()"), "another id")
}
