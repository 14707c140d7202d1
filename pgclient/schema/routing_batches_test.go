// Batches of events between two snapshots: each committed event is routed once, whatever
// transactions do, and an open transaction delays only its own events.

package schema_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// routing is a database in which routers route the events of both tables, events and event_outbox.
type routing struct {
	*core
	rand      *rand.Rand
	next      int
	committed []int
	writers   []*writer
	// open is the transaction of a router that has not ended; nil = none.
	open pgx.Tx
}

// writer is a session that writes events; marks[i] is the number of its uncommitted events at
// savepoint i.
type writer struct {
	conn    *pgx.Conn
	open    bool
	pending []int
	marks   []int
}

func newRouting(t *testing.T, seed uint64) *routing {
	c := newRoutes(t)
	c.exec("INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('order', 'http://127.0.0.1:1/', true, true)")
	r := &routing{core: c, rand: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // a test can be repeated with its seed
	for range 5 {
		r.writers = append(r.writers, &writer{conn: c.db.Conn(t, "")})
	}
	r.drain() // creates the cursors
	return r
}

const (
	writeEvents = `WITH e AS (INSERT INTO public.events (event_type, payload) VALUES ('order', to_jsonb(%[1]d)))
		SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, '%[1]d')`
	runRouters = "SELECT public.fn_webhook_router_run(%[1]d), public.fn_iu_route_worker_run('iu_outbound_default', %[1]d)"
	routedOnce = `SELECT COALESCE(array_agg((e.payload #>> '{}')::int), '{}') FROM public.webhook_delivery_sagas s JOIN public.events e ON e.id = s.event_id
		UNION ALL SELECT COALESCE(array_agg(e.event_subject_ref::int), '{}') FROM public.iu_route_attempt a JOIN public.event_outbox e ON e.id = a.event_id
			WHERE e.event_domain = 'iu'`
	seenTimes = `SELECT (SELECT events_seen FROM public.router_offsets) || ' ' || (SELECT events_seen FROM public.iu_route_worker_cursor WHERE event_domain = 'iu')`
	unrouted  = `SELECT (SELECT waiting FROM public.fn_webhook_unrouted()) || ' ' || (SELECT waiting FROM public.fn_iu_route_backlog() WHERE event_domain = 'iu')`
)

func (r *routing) run(conn *pgx.Conn, sql string, args ...any) {
	r.t.Helper()
	_, err := conn.Exec(context.Background(), fmt.Sprintf(sql, args...))
	require.NoError(r.t, err)
}

// later ends a transaction with a new id, so that the ids of older open transactions are below the
// highest id of a snapshot.
func (r *routing) later() { r.exec("SELECT pg_current_xact_id()") }

// write makes a random writer take one random step.
func (r *routing) write() {
	w := r.writers[r.rand.IntN(len(r.writers))]
	switch n := r.rand.IntN(10); {
	case !w.open:
		r.run(w.conn, "BEGIN")
		w.open = true
	case n < 5:
		r.next++
		r.run(w.conn, writeEvents, r.next)
		w.pending = append(w.pending, r.next)
	case n == 5:
		r.run(w.conn, "SAVEPOINT s%d", len(w.marks))
		w.marks = append(w.marks, len(w.pending))
	case n == 6 && len(w.marks) > 0:
		to := r.rand.IntN(len(w.marks))
		r.run(w.conn, "ROLLBACK TO SAVEPOINT s%d", to)
		w.pending, w.marks = w.pending[:w.marks[to]], w.marks[:to+1]
	case n == 7 && len(w.marks) > 0:
		r.run(w.conn, "RELEASE SAVEPOINT s%d", len(w.marks)-1)
		w.marks = w.marks[:len(w.marks)-1]
	case n == 8:
		r.end(w, "COMMIT")
	case n == 9 && r.rand.IntN(3) == 0:
		r.end(w, "ROLLBACK")
	}
}

func (r *routing) end(w *writer, how string) {
	r.run(w.conn, "%s", how)
	if how == "COMMIT" {
		r.committed = append(r.committed, w.pending...)
	}
	w.open, w.pending, w.marks = false, nil, nil
}

// route makes a router take one random step. Most runs commit; some stay open beside others, are
// terminated, use an old snapshot, or write events themselves.
func (r *routing) route() {
	ctx := context.Background()
	sql := fmt.Sprintf(runRouters, 1+r.rand.IntN(6))
	if r.open != nil && r.rand.IntN(3) == 0 {
		if r.rand.IntN(2) == 0 {
			require.NoError(r.t, r.open.Commit(ctx))
		} else {
			require.NoError(r.t, r.open.Rollback(ctx))
		}
		r.open = nil
		return
	}
	switch n := r.rand.IntN(10); {
	case n == 0 && r.open == nil:
		r.open = r.begin(r.root)
		_, err := r.open.Exec(ctx, sql)
		require.NoError(r.t, err)
	case n == 1:
		conn := r.db.Conn(r.t, "")
		r.run(conn, "BEGIN; %s", sql)
		r.exec("SELECT pg_terminate_backend($1, 60000)", int(conn.PgConn().PID()))
	case n == 2 && r.open == nil:
		own := []int{r.next + 1, r.next + 2}
		r.next += 2
		r.run(r.writers[0].conn, "BEGIN; "+writeEvents, own[0])
		r.later()
		r.run(r.writers[0].conn, "%s", sql)
		r.run(r.writers[0].conn, writeEvents+"; COMMIT", own[1])
		r.committed = append(r.committed, own...)
	case n == 3 && r.open == nil:
		r.exec("BEGIN ISOLATION LEVEL REPEATABLE READ; " + sql + "; COMMIT")
	default:
		r.exec(sql)
	}
}

// drain runs the routers until no event is left to route.
func (r *routing) drain() {
	r.t.Helper()
	eventually(r.t, "nothing waits", func() bool {
		r.exec(fmt.Sprintf(runRouters, 3))
		return get[string](r.core, unrouted) == "0 0"
	})
}

// With random interleavings of routers and of writers with savepoints, exactly the committed events
// are routed, each once.
func TestRoutingOfRandomInterleavings(t *testing.T) {
	t.Parallel()
	runs, steps := 3, 250
	if os.Getenv("QTOP_TEST_FULL") != "" {
		runs, steps = 30, 1500
	}
	for range runs {
		seed := rand.Uint64() //nolint:gosec // a test can be repeated with its seed
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			r := newRouting(t, seed)
			for range steps {
				if r.rand.IntN(4) == 0 {
					// writer 0 is also used by the router that writes events itself
					if w := r.writers[0]; w.open {
						r.end(w, "COMMIT")
					}
					r.route()
				} else {
					r.write()
				}
			}
			if r.open != nil {
				require.NoError(t, r.open.Commit(context.Background()))
			}
			for _, w := range r.writers {
				if w.open {
					r.end(w, "COMMIT")
				}
			}
			r.drain()
			slices.Sort(r.committed)
			rows, err := r.root.Query(context.Background(), routedOnce)
			require.NoError(t, err)
			routed, err := pgx.CollectRows(rows, pgx.RowTo[[]int])
			require.NoError(t, err)
			for _, of := range routed {
				slices.Sort(of)
			}
			require.Equal(t, [][]int{r.committed, r.committed}, routed)
			require.Equal(t, fmt.Sprintf("%[1]d %[1]d", len(r.committed)), get[string](r.core, seenTimes), "each is taken once")
		})
	}
}

// Routers do not scan the rows of an open transaction, and a router without events to route writes
// nothing.
func TestRoutingScansNoOpenTransaction(t *testing.T) {
	r := newRouting(t, 1)
	w := r.writers[0]
	r.run(w.conn, "BEGIN")
	r.run(w.conn, "INSERT INTO public.events (event_type, payload) SELECT 'order', '0' FROM generate_series(1, 20000)")
	r.run(w.conn, "SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, '0') FROM generate_series(1, 3000)")
	r.later()
	stood := "SELECT string_agg(concat_ws(' ', ctid, c.*), ';' ORDER BY worker_name, event_domain) FROM public.queue_cursor c"
	before := get[string](r.core, stood)
	var touched int
	tx := r.begin(r.root)
	for range 3 {
		_, err := tx.Exec(context.Background(), fmt.Sprintf(runRouters, 1000))
		require.NoError(t, err)
	}
	require.NoError(t, tx.QueryRow(context.Background(), `SELECT pg_stat_get_xact_tuples_returned('public.events'::regclass) + pg_stat_get_xact_tuples_fetched('public.events'::regclass)
		+ (SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_index WHERE indrelid IN ('public.events'::regclass) OR indrelid IN (
			SELECT inhrelid FROM pg_inherits WHERE inhparent = 'public.event_outbox'::regclass))`).Scan(&touched))
	require.NoError(t, tx.Commit(context.Background()))
	require.Less(t, touched, 1000)
	require.Equal(t, before, get[string](r.core, stood))
	r.run(w.conn, "COMMIT")
	require.Equal(t, "10001 3000", get[string](r.core, unrouted))
}

// If a batch is routed in parts, each part begins behind the previous one. This also holds for
// events of a transaction that was open when the batch before began.
func TestRoutingInParts(t *testing.T) {
	r := newRouting(t, 1)
	late := r.writers[0]
	r.run(late.conn, "BEGIN; "+writeEvents, 1)
	for n := 2; n <= 4; n++ {
		r.exec(fmt.Sprintf(writeEvents, n))
	}
	r.exec(fmt.Sprintf(runRouters, 2))
	require.Equal(t, "1 1", get[string](r.core, unrouted))
	r.run(late.conn, writeEvents+"; COMMIT", 5)
	r.exec(fmt.Sprintf(writeEvents, 6))
	require.Equal(t, "4 4", get[string](r.core, unrouted))
	for range 4 {
		r.exec(fmt.Sprintf(runRouters, 1))
	}
	require.Equal(t, "0 0", get[string](r.core, unrouted))
	require.Equal(t, "6 6", get[string](r.core, seenTimes))
}

// Events from logical replication have transaction ids of another cluster; they are routed like new
// events.
func TestRoutingOfAppliedEvents(t *testing.T) {
	r := newRouting(t, 1)
	r.exec(fmt.Sprintf(writeEvents, 1))
	r.drain()
	r.exec(`BEGIN; SET LOCAL session_replication_role = replica; INSERT INTO public.events (event_type, payload, created_at, created_xid) VALUES ('order', '2', now(), '4');
		INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, event_subject_ref, created_xid) VALUES ('iu', 'made', 's', 'immediate', '2', '4'); COMMIT`)
	require.Equal(t, "1 1", get[string](r.core, unrouted))
	r.drain()
	require.Equal(t, "2 2", get[string](r.core, seenTimes))
}

// A partition of event_outbox is kept while a transaction that wrote into it is open, and until its
// events are routed, even if younger events are routed already.
func TestRetentionKeepsEventsOfOpenTransactions(t *testing.T) {
	r := newRouting(t, 1)
	leaf := get[string](r.core, "SELECT 'event_outbox_' || to_char((now() AT TIME ZONE 'UTC') - interval '7 months', 'YYYY_MM')")
	r.exec(fmt.Sprintf(`CREATE TABLE public.%[1]s PARTITION OF public.event_outbox FOR VALUES FROM (date_trunc('month', now() - interval '7 months', 'UTC')) TO
		(date_trunc('month', now() - interval '6 months', 'UTC')); ALTER TABLE public.%[1]s OWNER TO queue_owner`, leaf))
	old := `SET LOCAL session_replication_role = replica; INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, event_subject_ref, created_at)
		VALUES ('iu', 'made', 's', 'immediate', '1', date_trunc('month', now() - interval '7 months', 'UTC') + interval '1 day')`
	r.exec("BEGIN; " + old + "; COMMIT")
	r.drain()
	late := r.writers[0]
	r.run(late.conn, "BEGIN; %s", old)
	there := func() bool { return get[bool](r.core, "SELECT to_regclass('public.' || $1) IS NOT NULL", leaf) }
	swept := make(chan error, 1)
	go func() {
		_, err := r.root.Exec(context.Background(), "SELECT public.fn_queue_retention_sweep()")
		swept <- err
	}()
	eventually(t, "the sweep waits or has given up", func() bool {
		return len(swept) > 0 || get[bool](r.core, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation IN ('public.event_outbox'::regclass, $1::regclass) AND NOT granted)", "public."+leaf)
	})
	r.run(late.conn, "COMMIT")
	require.NoError(t, <-swept)
	require.True(t, there(), "what was committed while it waited")
	require.Contains(t, r.sweep()["kept"].(map[string]any)[leaf], "no cursor has passed")
	require.True(t, there())
	r.drain()
	require.Contains(t, r.sweep()["dropped"], leaf)
	require.False(t, there())
}
