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

// stubOrchestrator replaces the orchestrator by a function that returns the result of a full run, an
// expression of SQL, and makes one job in each; a quick run finds nothing.
func (w *world) stubOrchestrator(full string) {
	w.t.Helper()
	w.exec(`CREATE OR REPLACE FUNCTION public.fn_saga_orchestrator_run(p_limit int DEFAULT 1000, p_quick boolean DEFAULT false) RETURNS jsonb
		LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			IF p_quick THEN
				RETURN '{"jobs_created": 0}';
			END IF;
			RETURN jsonb_build_object('jobs_created', 1, 'at', clock_timestamp()) || ` + full + `;
		END $$`)
}

// While retries become due so closely that some always are due when a run ends, the orchestrator runs
// once a second.
func TestDueTimesDuringAWaveOfRetries(t *testing.T) {
	t.Parallel()
	w := slowWorld(t, "queue.notify.bridge_enabled", "false")
	w.stubOrchestrator("jsonb_build_object('next_due', clock_timestamp() - interval '1 millisecond')")
	w.run(workerhost.Options{Loops: []string{"saga_orchestrator"}})
	eventually(t, func() bool { return w.int(runsOf, "saga_orchestrator") > 0 }, "it does not run")
	time.Sleep(14 * time.Second)
	n, longest := w.int(runsOf, "saga_orchestrator"), w.text("SELECT max(at - before) FROM (SELECT at, lag(at) OVER (ORDER BY at) AS before FROM public.ran WHERE worker = 'saga_orchestrator') r")
	t.Logf("%d runs in 14 s, %s between two of them at most", n, longest)
	require.GreaterOrEqual(t, n, 11)
}

// A host keeps the due time that a full run told while quick runs follow, which do not read what is due
// then, although full runs of other hosts come between them.
func TestQuickRunsKeepTheDueTime(t *testing.T) {
	t.Parallel()
	w := slowWorld(t, "queue.notify.bridge_enabled", "true")
	r := receive(t, ok)
	w.subscribe("order", r.URL, nil)
	w.stubOrchestrator("jsonb_build_object('next_due', clock_timestamp() + interval '8 seconds')")
	w.run(workerhost.Options{Loops: []string{"webhook_router", "saga_orchestrator"}}).listens()
	eventually(t, func() bool { return w.int(runsOf, "saga_orchestrator") > 0 }, "it does not run")
	other := func() {
		w.exec("UPDATE public.queue_tick_worker SET last_run_at = clock_timestamp() WHERE worker_name = 'saga_orchestrator'")
	}
	other()
	w.events("order", 1) // the router wakes the orchestrator
	for range 30 {
		other()
		time.Sleep(100 * time.Millisecond)
	}
	before := w.int(runsOf, "saga_orchestrator")
	eventually(t, func() bool { return w.int(runsOf, "saga_orchestrator") > before }, "no run at the due time")
}
