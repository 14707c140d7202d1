package workerhost_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
)

// recordTicks makes the database record each tick that a host asks for, from now on, except those that
// found the tick of another host under way. The statistics of the server count no tick that finds
// nothing to do: it calls no function of the worker.
func (w *world) recordTicks() {
	w.t.Helper()
	w.exec(`CREATE TABLE public.asked (worker text);
		GRANT INSERT ON public.asked TO PUBLIC;
		CREATE OR REPLACE FUNCTION public.fn_queue_tick_request(p_worker_name text, p_source text DEFAULT 'external') RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER AS
			'DECLARE v jsonb; BEGIN v := public.fn_queue_tick_run(p_worker_name, p_source);
				IF v ->> ''skipped'' IS DISTINCT FROM ''lease_held'' THEN INSERT INTO public.asked VALUES (p_worker_name); END IF; RETURN v; END'`)
}

// ticks returns how many ticks of a worker hosts have asked for.
func (w *world) ticks(worker string) int {
	w.t.Helper()
	return w.int("SELECT count(*)::int FROM public.asked WHERE worker = $1", worker)
}

// One delayed job wakes the tick worker of every host. Each host then ticks a few times, however
// many hosts there are: a full run of any host is enough for all of them.
func TestOneWakeOfManyHosts(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100, "queue.notify.bridge_enabled", "true")
	w.recordTicks()
	w.enqueue("first", 1) // hosts listen only for existing domains
	const n = 8
	var hosts []*hosted
	for i := range n {
		h := runHost(t, w.dsn, workerhost.Options{ID: "h" + strconv.Itoa(i), Loops: []string{"job_queue_default"}})
		h.listens()
		hosts = append(hosts, h)
	}
	ticks := func() int { return w.ticks("job_queue_default") }
	eventually(t, func() bool { return ticks() >= n }, "the hosts tick")
	time.Sleep(3 * time.Second) // full runs follow
	before := ticks()
	w.exec("SELECT public.fn_job_enqueue('work', 'work', 'DOT', p_process_after => clock_timestamp() + interval '100 ms')")
	time.Sleep(9 * time.Second) // nothing to wait for: the hosts must not tick
	extra := 0
	for _, h := range hosts {
		extra += h.extraRuns()
	}
	made := ticks() - before
	t.Logf("%d ticks", made)
	require.LessOrEqual(t, made, 6*n+extra)
}

// Without wake signals, all hosts find by their looks when a job becomes due, and few of them tick for
// it.
func TestOneDueJobOfManyHosts(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100, "queue.notify.bridge_enabled", "false")
	w.recordTicks()
	const n, jobs = 8, 4
	for i := range n {
		runHost(t, w.dsn, workerhost.Options{ID: "h" + strconv.Itoa(i), Loops: []string{"job_queue_default"}})
	}
	asked := func() int { return w.ticks("job_queue_default") }
	eventually(t, func() bool { return asked() >= n }, "the hosts tick")
	time.Sleep(3 * time.Second) // full runs follow
	before := asked()
	for range jobs {
		w.exec("SELECT public.fn_job_enqueue('work', 'work', 'DOT', p_process_after => clock_timestamp() + interval '1500 ms')")
		time.Sleep(3 * time.Second)
		eventually(t, func() bool { return w.int("SELECT count(*)::int FROM public.job_queue WHERE NOT ready") == 0 }, "nobody ticks")
	}
	ticks := asked() - before
	t.Logf("%d ticks for %d jobs", ticks, jobs)
	require.Less(t, ticks, 2*jobs*n, "each host would tick when a job becomes due, and a second later")
}

// While looks take long, hosts make them seldom.
func TestLongLooksAreSeldom(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100, "queue.notify.bridge_enabled", "false")
	w.exec(`CREATE TABLE public.looked (at timestamptz DEFAULT clock_timestamp());
		GRANT INSERT ON public.looked TO PUBLIC;
		CREATE OR REPLACE FUNCTION public.fn_job_next_due(p_told timestamptz, p_since timestamptz, OUT next_due timestamptz, OUT at timestamptz) LANGUAGE plpgsql SECURITY DEFINER AS
			'BEGIN INSERT INTO public.looked DEFAULT VALUES; PERFORM pg_sleep(0.4); END'`)
	w.run(workerhost.Options{Loops: []string{"job_queue_default"}})
	looks := "SELECT count(*)::int FROM public.looked"
	eventually(t, func() bool { return w.int(looks) > 0 }, "it does not look")
	time.Sleep(9 * time.Second)
	n := w.int(looks)
	t.Logf("%d looks", n)
	require.LessOrEqual(t, n, 4)
}
