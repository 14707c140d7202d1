// Tests of the times at which hosts tick: once at their start, then by the current interval.
package workerhost_test

import (
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
)

// slowWorld makes a database that counts the runs of tick workers. The interval of all loops is
// an hour, except for the loop that checks for silence.
func slowWorld(t *testing.T, flags ...string) *world {
	t.Helper()
	w := newWorld(t, flags...)
	rows, err := w.admin.Query(t.Context(), "SELECT worker_name FROM public.queue_tick_worker WHERE worker_name <> 'stale_heartbeat_check'")
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, name := range names {
		w.set("queue.tick."+name+".interval_seconds", "3600")
	}
	w.exec(`CREATE TABLE public.ran (worker text, at timestamptz DEFAULT clock_timestamp());
		CREATE FUNCTION public.count_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN INSERT INTO public.ran VALUES (NEW.worker_name); RETURN NULL; END';
		CREATE TRIGGER count_run AFTER UPDATE ON public.queue_tick_worker FOR EACH ROW WHEN (OLD.last_attempt_at IS DISTINCT FROM NEW.last_attempt_at)
			EXECUTE FUNCTION public.count_run()`)
	return w
}

const runsOf = "SELECT count(*)::int FROM public.ran WHERE worker = $1"

// A host runs each tick worker once at its start, whether or not its listener listens by then. A
// shorter interval takes effect before the longer one has passed; without a wake signal the host
// reads it within a second.
func TestTicksAtStartAndWithAShorterInterval(t *testing.T) {
	t.Parallel()
	for _, bridge := range []string{"true", "false"} {
		t.Run("bridge "+bridge, func(t *testing.T) {
			t.Parallel()
			w := slowWorld(t, "queue.notify.bridge_enabled", bridge)
			h := w.run(workerhost.Options{})
			h.listens()
			w.becomes(16, "SELECT count(DISTINCT worker)::int FROM public.ran")
			// The webhook loop has its own timer.
			for _, name := range []string{"config_expiry", "webhook_worker"} {
				before := w.int(runsOf, name)
				set := time.Now()
				w.set("queue.tick."+name+".interval_seconds", "1")
				eventually(t, func() bool { return w.int(runsOf, name) > before }, "%s waits for the end of the old interval", name)
				took := time.Since(set)
				t.Logf("%s ran %v after its interval became 1 s", name, took.Round(time.Millisecond))
				if os.Getenv("QTOP_TEST_FULL") != "" { // the time depends on the machine
					require.Less(t, took, 2500*time.Millisecond, "the interval and one read of it")
				}
			}
			eventually(t, func() bool { return w.int(runsOf, "config_expiry") > 3 }, "the shorter interval stays in use")
			require.Equal(t, "", w.text(`SELECT string_agg(worker || ' ' || n, ',') FROM (SELECT worker, count(*) AS n FROM public.ran
				WHERE worker NOT IN ('config_expiry', 'webhook_worker') GROUP BY 1) x WHERE n > 1`), "one run of each at the start")
		})
	}
}

// The interval counts from start to start, however long a run takes.
func TestIntervalCountsFromStartToStart(t *testing.T) {
	t.Parallel()
	const name = "config_expiry"
	w := slowWorld(t, "queue.notify.bridge_enabled", "false")
	w.exec(`CREATE OR REPLACE FUNCTION public.count_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
		'BEGIN INSERT INTO public.ran VALUES (NEW.worker_name); PERFORM pg_sleep(1); RETURN NULL; END'`)
	w.set("queue.tick."+name+".interval_seconds", "2")
	w.run(workerhost.Options{Loops: []string{name}})
	const runs = 5
	eventually(t, func() bool { return w.int(runsOf, name) >= runs }, "%s does not run", name)
	took := time.Duration(w.int("SELECT (1000 * extract(epoch FROM max(at) - min(at)))::int FROM (SELECT at FROM public.ran WHERE worker = $1 ORDER BY at LIMIT $2) r", name, runs)) * time.Millisecond
	require.Less(t, took, (runs-1)*2500*time.Millisecond, "%d runs", runs)
}

// What became work while no host listened is found by the first tick of a host, however long the
// interval since the last run of an earlier host still is.
func TestFirstTickFindsWhatNoHostHeard(t *testing.T) {
	t.Parallel()
	w := routesWorld(t)
	for _, name := range []string{"iu_outbound_default", "staging_outbound"} {
		w.set("queue.tick."+name+".interval_seconds", "3600")
		w.exec("SELECT public.fn_queue_tick_request($1, 'external')", name)
	}
	w.exec(emit, "iu", 2)
	w.exec(emit, "staging", 1)
	w.run(workerhost.Options{Loops: []string{"iu_outbound_default", "staging_outbound"}})
	w.becomes(3, routedEvents)
}
