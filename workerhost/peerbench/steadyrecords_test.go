package main

import (
	"context"
	"testing"
	"time"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/schema"
)

// The records of qtop's loads begin with the insert of the producer: of a webhook or a routed event
// the event, not what a router makes of it later.
func TestRecordsBeginWithTheInsert(t *testing.T) {
	if testing.Short() {
		t.Skip("short: no jobs are run on a server")
	}
	ctx := t.Context()
	server, err := embedded.Start(ctx, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	w := &world{steadyRun: &steadyRun{}, server: server, ledger: &steadyLedger{}, url: "http://127.0.0.1:1"}
	if err := w.createDatabase(ctx); err != nil {
		t.Fatal(err)
	}
	defer w.admin.Close()
	if err := schema.Current().Up(ctx, w.dsn(embedded.Superuser), schema.UpOptions{AdoptRoles: true}); err != nil {
		t.Fatal(err)
	}
	for _, setUp := range []func(context.Context, *world) error{func(ctx context.Context, w *world) error { return w.setUpQtop(ctx) }, subscribe, consume} {
		if err := setUp(ctx, w); err != nil {
			t.Fatal(err)
		}
	}
	must := func(sql string, args ...any) {
		t.Helper()
		if _, err := w.admin.Exec(ctx, sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	workJob := func() {
		must("CREATE TABLE claimed AS SELECT job_id, lease_token FROM public.fn_job_claim('" + qtopExecutor + "', NULL, 10)")
		must("SELECT public.fn_job_ack(array_agg(job_id), array_agg(lease_token)) FROM claimed")
		must("DROP TABLE claimed")
	}
	s := &steadyRun{}
	for _, c := range []struct {
		who             contestant
		insert          string
		work            func()
		inserted, later string // when the event or job was inserted, and when a router continued it
	}{
		{s.qtopJobs(binary{}), oneJob, workJob, "SELECT enqueued_at FROM public.job_history", ""},
		{s.qtopWebhooks(binary{}), oneWebhook, func() {
			must("SELECT public.fn_webhook_router_run()")
			must("SELECT public.fn_saga_orchestrator_run()")
			must(`CREATE TABLE claimed AS SELECT job_id, lease_token FROM public.fn_webhook_job_claim('test', 10)`)
			must(`SELECT public.fn_webhook_job_report(jsonb_agg(jsonb_build_object('job_id', job_id, 'lease_token', lease_token, 'delivered', true,
				'status', 204, 'took_ms', 1))) FROM claimed`)
			must("DROP TABLE claimed")
			must("SELECT public.fn_saga_orchestrator_run()")
		}, "SELECT created_at FROM public.events", "SELECT created_at FROM public.webhook_delivery_sagas"},
		{s.qtopRouted(binary{}), oneEvent, func() {
			must("SELECT public.fn_iu_route_worker_run('iu_outbound_default')")
			workJob()
		}, "SELECT created_at FROM public.event_outbox", "SELECT enqueued_at FROM public.job_history WHERE causation_event_id IS NOT NULL"},
	} {
		must(c.insert, 7)
		c.work()
		w.who = c.who
		if err := w.readRecords(ctx); err != nil {
			t.Fatal(err)
		}
		if len(w.ledger.records) != 1 {
			t.Fatalf("%s: %d records", c.who.load, len(w.ledger.records))
		}
		r := w.ledger.records[0]
		at := func(sql string) (at time.Time) {
			t.Helper()
			if err := w.admin.QueryRow(ctx, sql).Scan(&at); err != nil {
				t.Fatal(err)
			}
			return at
		}
		inserted := at(c.inserted).UnixNano()
		if r.n != 7 || r.inserted != inserted || r.completed <= r.inserted {
			t.Errorf("%s: %+v, inserted %d", c.who.load, r, inserted)
		}
		if c.later != "" && at(c.later).UnixNano() <= inserted {
			t.Errorf("%s: the router did not come later, so nothing was compared", c.who.load)
		}
	}
}
