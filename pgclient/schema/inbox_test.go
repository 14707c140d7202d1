// A look at an inbox costs as much as is unread, not as much as its recipient has read, and shows
// all that is unread, whatever its position says.

package schema_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// inbox is the inbox of the role queue_viewer, to which events of the domain kg are routed; those of
// iu go to everybody.
type inbox struct{ *core }

const (
	reader = "role:queue_viewer"
	// unread finds the unread events without a position.
	unread = `SELECT a.event_id, a.attempted_at FROM public.iu_route_attempt a WHERE a.recipient_ref IN ('` + reader + `', 'broadcast')
		AND NOT EXISTS (SELECT FROM public.event_read r WHERE r.event_id = a.event_id AND r.recipient_ref = '` + reader + `')`
)

func newInbox(t *testing.T) inbox {
	t.Helper()
	c := newRoutes(t)
	c.exec("DELETE FROM public.event_subscription")
	c.exec("INSERT INTO public.event_subscription (recipient_ref, event_domain) VALUES ('" + reader + "', 'kg')")
	return inbox{c}
}

func (i inbox) emit(domain string, n int) {
	i.t.Helper()
	i.exec("SELECT public.fn_iu_emit_event($1, 'made', 's', 'immediate', 'info', NULL, 'x') FROM generate_series(1, $2::int)", domain, n)
}

const routeRun = "public.fn_iu_route_worker_run('iu_outbound_default', 10000)"

// route writes n events and routes them.
func (i inbox) route(domain string, n int) {
	i.t.Helper()
	i.emit(domain, n)
	eventually(i.t, "routed", func() bool {
		call(i.t, i.root, routeRun)
		return get[int](i.core, "SELECT count(*) FROM public.event_outbox e WHERE NOT EXISTS (SELECT FROM public.iu_route_attempt a WHERE a.event_id = e.id)") == 0
	})
}

// history writes attempts of n events that the reader has read, one per second, the newest ago
// before now.
func (i inbox) history(recipient string, n int, ago string) {
	i.t.Helper()
	i.exec(`WITH a AS (INSERT INTO public.iu_route_attempt (event_id, recipient_ref, step, event_domain, event_type, worker_name, attempted_at)
			SELECT gen_random_uuid(), $1, 5, 'iu', 'made', 'w', clock_timestamp() - $3::interval - make_interval(secs => i) FROM generate_series(0, $2::int - 1) i RETURNING event_id)
		INSERT INTO public.event_read (event_id, recipient_ref) SELECT event_id, '`+reader+`' FROM a`, recipient, n, ago)
}

// mark marks the newest unread events.
func (i inbox) mark(limit int) {
	i.t.Helper()
	i.exec("SELECT public.fn_event_mark_read(array_agg(event_id), '"+reader+"') FROM (SELECT event_id FROM public.fn_event_inbox('"+reader+"', true, $1::int)) x HAVING count(*) > 0", limit)
}

// shows requires that the inbox shows the newest unread events, and returns how many are unread.
func (i inbox) shows() int {
	i.t.Helper()
	shown := "public.fn_event_inbox('" + reader + "', true, 1000)"
	require.Equal(i.t, get[[]string](i.core, "SELECT COALESCE(array_agg(x.attempted_at::text ORDER BY x.attempted_at DESC), '{}') FROM ("+unread+" ORDER BY a.attempted_at DESC LIMIT 1000) x"),
		get[[]string](i.core, "SELECT COALESCE(array_agg(routed_at::text ORDER BY routed_at DESC), '{}') FROM "+shown))
	require.Zero(i.t, get[int](i.core, "SELECT count(*) - count(DISTINCT u.event_id) FROM "+shown+" s LEFT JOIN ("+unread+") u ON (u.event_id, u.attempted_at) = (s.event_id, s.routed_at)"))
	return get[int](i.core, "SELECT count(*) FROM ("+unread+") x")
}

// cost is how many rows a look at the inbox reads.
func (i inbox) cost() float64 {
	i.t.Helper()
	i.exec("VACUUM ANALYZE")
	return touched(i.t, i.db, "SET plan_cache_mode = force_generic_plan; SELECT count(*) FROM public.fn_event_inbox('"+reader+"')", 0)
}

func TestInboxCostsWhatIsUnread(t *testing.T) {
	for _, of := range []struct{ recipient, domain string }{{"broadcast", "iu"}, {reader, "kg"}} {
		t.Run(of.domain, func(t *testing.T) {
			i := newInbox(t)
			i.history(of.recipient, 50000, "1 minute")
			i.route(of.domain, 5)
			i.exec("UPDATE public.iu_route_attempt SET attempted_at = now() - interval '5 hours' WHERE worker_name <> 'w'")
			i.route(of.domain, 100)
			for _, n := range []int{60, 20, 10, 9, 1} {
				i.mark(n)
			}
			require.Equal(t, 5, i.shows())
			few := i.cost()
			i.mark(5)
			require.Zero(t, i.shows())
			none := i.cost()
			t.Logf("with 5 unread events %.0f rows, with none %.0f", few, none)
			require.Less(t, few, 1000.0)
			require.Less(t, none, 1000.0)
			i.history(of.recipient, 999, "0") // fewer do not move the position
			require.Less(t, i.cost(), 5000.0)
		})
	}
}

// A reader goes through a long backlog, the newest first, and the last look costs no more than the
// first ones.
func TestInboxBacklog(t *testing.T) {
	i := newInbox(t)
	for range 10 {
		i.route("iu", 1000)
	}
	for left := 10000; left > 0; left -= 500 {
		require.Equal(t, left, i.shows())
		if left == 9500 || left == 500 {
			cost := i.cost()
			t.Logf("%d left: %.0f rows", left, cost)
			require.Less(t, cost, 12000.0)
		}
		i.mark(500)
	}
	require.Zero(t, i.shows())
	require.Equal(t, 1, get[int](i.core, "SELECT count(*) FROM public.event_inbox_position"), "former positions are deleted")
}

// Whatever is read in whatever order, all the rest is shown.
func TestInboxShowsAllThatIsUnread(t *testing.T) {
	i := newInbox(t)
	for step := range 12 {
		i.route([]string{"iu", "kg"}[step%2], 200+rand.IntN(200))
		for range rand.IntN(4) {
			i.exec("SELECT public.fn_event_mark_read(array_agg(event_id), '"+reader+"') FROM (SELECT event_id FROM ("+unread+") x WHERE random() < $1 ORDER BY random() LIMIT 1000) x HAVING count(*) > 0", rand.Float64())
		}
		left := i.shows()
		t.Logf("step %d: %d unread", step, left)
	}
	for i.shows() > 0 {
		i.mark(1000)
	}
	require.Equal(t, 2, get[int](i.core, "SELECT count(*) FROM public.event_inbox_position"))
}

// An event that another transaction routes at the same time is shown once it is committed, whether
// the position is moved before or after it was routed.
func TestInboxPositionBesideARouter(t *testing.T) {
	positions := "SELECT count(*) FROM public.event_inbox_position"
	for _, of := range []struct {
		name   string
		before bool
		want   int
	}{{"begun", false, 1}, {"routed", true, 0}} {
		t.Run(of.name, func(t *testing.T) {
			i := newInbox(t)
			i.emit("iu", 1)
			router := i.begin(i.root)
			run := func() {
				var n int
				require.NoError(t, router.QueryRow(context.Background(), "SELECT (r ->> 'events')::int FROM "+routeRun+" r").Scan(&n))
				require.Equal(t, 1, n)
			}
			_, err := router.Exec(context.Background(), "SELECT now()")
			require.NoError(t, err)
			if of.before {
				run()
			}
			i.history("broadcast", 1000, "0")
			i.exec("SELECT public.fn_event_mark_read(array_agg(event_id), '" + reader + "') FROM (SELECT event_id FROM public.iu_route_attempt LIMIT 1) x")
			require.Equal(t, of.want, get[int](i.core, positions))
			if !of.before {
				run()
			}
			require.NoError(t, router.Commit(context.Background()))
			require.Equal(t, 1, i.shows())
			i.mark(1)
			require.Zero(t, i.shows())
			require.Equal(t, 1, get[int](i.core, positions))
		})
	}
}

// While the clock is behind the newest attempts, new ones are shown nevertheless.
func TestInboxAfterTheClockWasSetBack(t *testing.T) {
	i := newInbox(t)
	i.history("broadcast", 1000, "1 minute")
	i.route("iu", 1)
	i.mark(1)
	i.exec("UPDATE public.event_inbox_position SET read_until = read_until + interval '1 hour'")
	i.exec("UPDATE public.iu_route_attempt SET attempted_at = attempted_at + interval '1 hour'")
	reads := i.begin(i.root) // has moved a position and is still open
	_, err := reads.Exec(context.Background(), `INSERT INTO public.event_inbox_position (recipient_ref, routed_to, read_after, read_until, unread)
		SELECT recipient_ref, routed_to, read_after, read_until, unread FROM public.event_inbox_position`)
	require.NoError(t, err)
	i.emit("iu", 1)
	call(t, i.root, routeRun)
	require.NoError(t, reads.Commit(context.Background()))
	require.Equal(t, 1, i.shows(), "the router did not wait for the reader")
	i.mark(1)
	require.Zero(t, i.shows())
	i.emit("iu", 1)
	call(t, i.root, routeRun)
	require.Equal(t, 1, i.shows())
	i.mark(1)
	require.Zero(t, i.shows())
	require.Zero(t, get[int](i.core, "SELECT count(*) FROM public.event_inbox_position"), "no position before the clock has caught up")
}
