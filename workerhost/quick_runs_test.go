// Tests of quick runs, in which a busy host reads only new rows.
package workerhost_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
)

// While events keep arriving, a host reads only rows that are newer than the rows it has
// processed. Rows that become visible before that point are found nevertheless, without a wake
// signal: a job that another host hands back, and a saga whose transaction was open. They are
// also found, long before the next tick is due, if no more events arrive.
func TestBusyHostFindsOlderWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.notify.bridge_enabled", "true")
	r := receive(t, ok)
	sub := w.subscribe("order", r.URL, nil)
	w.events("order", 2)
	w.exec("SELECT public.fn_webhook_router_run(), public.fn_saga_orchestrator_run()")
	w.exec("CREATE TABLE public.theirs AS SELECT job_id, lease_token FROM public.fn_webhook_job_claim('theirs', 2)")
	for _, loop := range []string{"webhook_router", "saga_orchestrator", "webhook_worker"} {
		w.set("queue.tick."+loop+".interval_seconds", "600")
	}
	w.run(workerhost.Options{Loops: []string{"webhook_router", "saga_orchestrator", "webhook_worker"}}).listens()
	n := 0
	busy := func(during time.Duration) {
		for until := time.Now().Add(during); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			w.events("order", 1)
			n++
		}
	}
	handBack := func() { // sends no wake signal, as if it were lost
		w.exec(`WITH one AS (DELETE FROM public.theirs WHERE job_id = (SELECT min(job_id) FROM public.theirs) RETURNING *, set_config('qtop.doorbell', 'on', true))
			SELECT public.fn_webhook_job_release(array_agg(job_id), array_agg(lease_token)) FROM one`)
		n++
	}
	late := func() {
		tx, err := w.admin.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), "SET LOCAL qtop.doorbell = on")
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `WITH e AS (INSERT INTO public.events (event_type, payload) VALUES ('order', '1') RETURNING id)
			INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) SELECT id, $1 FROM e`, sub)
		require.NoError(t, err)
		busy(300 * time.Millisecond)
		require.NoError(t, tx.Commit(t.Context()))
		n++
	}
	busy(500 * time.Millisecond)
	handBack()
	late()
	busy(500 * time.Millisecond)
	handBack()
	w.becomes(n, completed)
	busy(500 * time.Millisecond)
	late()
	w.becomes(n, completed)
	require.Equal(t, n, r.count(), "each once")
}

// A row on which a quick run fails ends that run. The host then starts a full run at once, not
// when the next tick is due, and the full run continues without the row.
func TestBusyHostGoesOnWithoutARowThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.notify.bridge_enabled", "true")
	r := receive(t, ok)
	w.subscribe("order", r.URL, nil)
	bad := w.subscribe("bad", r.URL, nil)
	w.exec(`CREATE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poison' USING ERRCODE = '23514'; END $$`)
	w.exec(fmt.Sprintf(`CREATE TRIGGER a_poison BEFORE INSERT ON public.webhook_delivery_sagas FOR EACH ROW WHEN (NEW.subscription_id = %d) EXECUTE FUNCTION public.poison()`, bad))
	loops := []string{"webhook_router", "saga_orchestrator", "webhook_worker"}
	for _, loop := range loops {
		w.set("queue.tick."+loop+".interval_seconds", "600")
	}
	w.run(workerhost.Options{Loops: loops}).listens()
	n := 0
	for round := 1; round <= 3; round++ {
		for range 20 {
			w.events("order", 1)
			n++
		}
		w.becomes(n, completed)
		w.exec("INSERT INTO public.events (event_type, payload) VALUES ('order', '1'), ('bad', '1')")
		n++
		w.becomes(n, completed)
		w.becomes(round, "SELECT count(*)::int FROM public.queue_quarantine WHERE step = 'webhook_route' AND code = '23514'")
	}
}
