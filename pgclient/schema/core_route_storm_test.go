package schema_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two routers and four writers work at once on many thousand events, with random failures, late
// commits, and routers that are terminated while they run: each event is routed once or makes one
// dead letter.
func TestRouteStorm(t *testing.T) {
	events, ends := 4000, 4
	if os.Getenv("QTOP_TEST_FULL") != "" {
		events, ends = 100_000, 40
	}
	c := newRoutes(t)
	c.exec("INSERT INTO public.consumer_registry VALUES ('c', 'iu', 'made', 'work', 'DOT', true, 't', now(), 't', now())")
	c.exec(`CREATE FUNCTION public.fn_test_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.event_id::text LIKE '%00' THEN RAISE 'poison'; END IF;
		IF random() < 0.00002 THEN RAISE 'moment' USING ERRCODE = '40001'; END IF; RETURN NEW; END $$`)
	c.exec("CREATE TRIGGER trg_test BEFORE INSERT ON public.iu_route_attempt FOR EACH ROW EXECUTE FUNCTION public.fn_test_refuse()")
	const writers = 4
	wide := c.wide(8, "event_ingest_writer", "dot_executor")
	var writing atomic.Int32
	writing.Store(writers)
	domains := []string{"iu", "kg"}
	done := func() bool { return writing.Load() == 0 }
	answers := together(t, writers+3, func(i int) (map[string]any, error) {
		ctx := context.Background()
		if i < writers {
			defer writing.Add(-1)
			for left := events / writers; left > 0; {
				n := min(left, 1+rand.IntN(200))
				left -= n
				_, err := wide.Exec(ctx, `SELECT public.fn_iu_emit_event($1, 'made', 's', 'immediate', 'info', NULL,
					pg_catalog.concat($2::pg_catalog.text, '/', g)) FROM pg_catalog.generate_series(1, $3::pg_catalog.int4) g, pg_catalog.pg_sleep($4)`,
					domains[i%2], fmt.Sprint(i, "-", left), n, []float64{0, 0, 0, 0.02}[rand.IntN(4)])
				if err != nil {
					return nil, err
				}
			}
			return nil, nil
		}
		if i == writers+2 { // terminates a router while it runs
			for range ends {
				_, err := c.root.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%storm worker%' AND state = 'active' AND pid <> pg_backend_pid() LIMIT 1")
				if err != nil {
					return nil, err
				}
				if _, err := c.root.Exec(ctx, "SELECT pg_sleep(0.05)"); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}
		died := 0
		for {
			was := done()
			got, err := tryCall(wide, "public.fn_iu_route_worker_run('iu_outbound_default', 300) /* storm worker */")
			switch {
			case err != nil:
				died++
			case was && num(got, "events") == 0:
				return map[string]any{"died": float64(died)}, nil
			}
		}
	})
	t.Log("failed runs of the workers:", answers[writers]["died"], answers[writers+1]["died"])
	c.route()
	require.Equal(t, events, get[int](c, "SELECT count(*) FROM public.event_outbox"))
	c.none("neither routed nor a dead letter, or both", `SELECT e.id FROM public.event_outbox e LEFT JOIN public.iu_route_attempt a ON a.event_id = e.id LEFT JOIN public.iu_route_dead_letter d ON d.event_id = e.id
		WHERE (a.event_id IS NULL) = (d.event_id IS NULL)`)
	c.none("a dead letter that is no poison", "SELECT event_id FROM public.iu_route_dead_letter WHERE failure_code <> 'ROUTE_P0001' OR event_id::text NOT LIKE '%00'")
	c.none("routed twice", "SELECT event_id FROM public.iu_route_attempt GROUP BY 1 HAVING count(*) <> 1")
	c.none("a job too many or too few", `SELECT a.event_id FROM public.iu_route_attempt a FULL JOIN public.job_queue q ON q.causation_event_id = a.event_id
		WHERE (a.event_domain = 'iu') <> (q.job_id IS NOT NULL)`)
	c.none("two jobs of an event", "SELECT causation_event_id FROM public.job_queue GROUP BY 1 HAVING count(*) <> 1")
	require.Equal(t, events, get[int](c, "SELECT sum(events_seen) FROM public.iu_route_worker_cursor"))
}
