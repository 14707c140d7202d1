// A quick run is not divided into steps: a row that fails ends it as a whole, and the following
// full run continues without that row.

package schema_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// poison creates a trigger that fails for the rows of the condition.
func (h *hooks) poison(when, table, condition string) {
	h.t.Helper()
	h.exec(`CREATE OR REPLACE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poison' USING ERRCODE = '23514'; END $$`)
	h.exec(fmt.Sprintf(`CREATE TRIGGER a_poison BEFORE %s ON public.%s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION public.poison()`, when, table, condition))
}

// ailing makes quick runs of a worker until the poisoned row fails one, then a full run at once,
// and returns the result of the full run. The quarantined row is not tried again in this test.
func (h *hooks) ailing(worker string) map[string]any {
	h.t.Helper()
	eventually(h.t, "a quick run fails", func() bool {
		h.justRan(worker, "0 seconds")
		got, err := tryCall(h.root, "public.fn_queue_tick_request($1, 'wake')", worker)
		require.NoError(h.t, err)
		require.Equal(h.t, true, got["quick"], got)
		return got["failed"] == true
	})
	require.Zero(h.t, one[int](h, "SELECT count(*) FROM public.queue_quarantine"), "a quick run keeps nothing")
	quick, result := h.woken(worker)
	require.False(h.t, quick, "the run after it is a full one")
	h.exec("UPDATE public.queue_quarantine SET set_aside_at = now()")
	require.Equal(h.t, 1, one[int](h, "SELECT (SELECT count(*) FROM public.queue_quarantine) + (SELECT count(*) FROM public.iu_route_dead_letter WHERE failure_code = 'ROUTE_23514')"))
	return result
}

// quickly makes quick runs of a worker until they have processed n rows, as the result's number
// counts them.
func (h *hooks) quickly(worker, number string, n int) {
	h.t.Helper()
	done := 0
	eventually(h.t, "a quick run does the rest", func() bool {
		h.justRan(worker, "0 seconds")
		quick, result := h.woken(worker)
		require.True(h.t, quick)
		done += num(result, number)
		return done == n
	})
}

func TestPoisonFailsAQuickRunAndTheFullOneGoesOn(t *testing.T) {
	t.Run("router", func(t *testing.T) {
		h := newHooks(t)
		h.subscribe("order")
		_, _ = h.woken("webhook_router")
		h.emit("order", 3)
		h.poison("INSERT", "webhook_delivery_sagas", "NEW.event_id = "+one[string](h, "SELECT max(id)::text FROM public.events"))
		result := h.ailing("webhook_router")
		require.Equal(t, []int{3, 2}, []int{num(result, "events"), num(result, "sagas")})
		require.Equal(t, 3, one[int](h, "SELECT events_seen FROM public.router_offsets"), "each is counted once")
		h.emit("order", 2)
		h.quickly("webhook_router", "sagas", 2)
		h.justRan("webhook_router", "2 seconds")
		_, _ = h.woken("webhook_router")
		require.Equal(t, 5, one[int](h, "SELECT events_seen FROM public.router_offsets"))
	})
	t.Run("events", func(t *testing.T) {
		h := newHooks(t)
		h.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
		h.exec("UPDATE public.dot_config SET value = 'true' WHERE key IN ('iu_core.routes_master_enabled', 'iu_core.route_worker_enabled')")
		h.exec("UPDATE public.iu_outbound_route SET enabled = true WHERE event_domain = 'iu'")
		emit := func(n int) {
			h.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL) FROM generate_series(1, $1)", n)
		}
		_, _ = h.woken("iu_outbound_default")
		emit(3)
		h.poison("INSERT", "iu_route_attempt", "NEW.event_id = '"+one[string](h, "SELECT max(id::text) FROM public.event_outbox WHERE event_type = 'made'")+"'")
		seen := "SELECT events_seen || ' ' || dead_lettered FROM public.iu_route_worker_cursor WHERE event_domain = 'iu'"
		result := h.ailing("iu_outbound_default")
		require.Equal(t, []int{3, 1}, []int{num(result, "events"), num(result, "dead_lettered")})
		require.Equal(t, "3 1", one[string](h, seen))
		emit(2)
		h.quickly("iu_outbound_default", "events", 2)
		h.justRan("iu_outbound_default", "2 seconds")
		_, _ = h.woken("iu_outbound_default")
		require.Equal(t, "5 1", one[string](h, seen))
		require.Equal(t, 4, one[int](h, "SELECT count(DISTINCT event_id) FROM public.iu_route_attempt WHERE event_domain = 'iu'"))
	})
	t.Run("orchestrator makes", func(t *testing.T) {
		h := newHooks(t)
		h.subscribe("order")
		h.emit("order", 1)
		h.step()
		h.justRan("saga_orchestrator", "2 seconds")
		_, _ = h.woken("saga_orchestrator")
		h.emit("order", 3)
		h.route()
		h.poison("UPDATE", "webhook_delivery_sagas", "NEW.id = "+one[string](h, "SELECT max(id)::text FROM public.webhook_delivery_sagas"))
		result := h.ailing("saga_orchestrator")
		require.Equal(t, 2, num(result, "jobs_created"))
		for _, full := range []bool{false, true} { // false: without made_through, true: with it
			if full {
				h.justRan("saga_orchestrator", "2 seconds")
				_, result = h.woken("saga_orchestrator")
				require.NotNil(t, result["made_through"])
			}
			h.emit("order", 2)
			h.route()
			h.quickly("saga_orchestrator", "jobs_created", 2)
		}
		require.Equal(t, "Pending", one[string](h, "SELECT string_agg(status::text, ' ') FROM public.webhook_delivery_sagas WHERE status <> 'InProgress'"))
	})
	t.Run("orchestrator settles", func(t *testing.T) {
		h := newHooks(t)
		h.subscribe("order")
		h.emit("order", 5)
		h.step()
		h.justRan("saga_orchestrator", "2 seconds")
		_, _ = h.woken("saga_orchestrator")
		all := h.claim(5)
		h.poison("UPDATE OF settled_at", "webhook_delivery_jobs", fmt.Sprintf("NEW.id = %d", all[4].Job))
		h.exec("UPDATE public.queue_tick_worker SET last_result = last_result || '{\"settled_from\": \"0\"}' WHERE worker_name = 'saga_orchestrator'")
		h.finish("", all[2:]...)
		result := h.ailing("saga_orchestrator")
		require.Equal(t, 2, num(result, "settled"))
		h.finish("", all[:2]...)
		h.quickly("saga_orchestrator", "settled", 2)
		require.Equal(t, 1, one[int](h, "SELECT count(*) FROM public.webhook_delivery_jobs WHERE settled_at IS NULL"))
	})
}

// If two events have the same id, the later one becomes a dead letter at once, even while the batch
// of the first one waits to be retried in parts; the first one is routed.
func TestPoisonBesideAnIDThatIsThereTwice(t *testing.T) {
	h := newHooks(t)
	h.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	h.exec("UPDATE public.dot_config SET value = 'true' WHERE key IN ('iu_core.routes_master_enabled', 'iu_core.route_worker_enabled')")
	h.exec("UPDATE public.iu_outbound_route SET enabled = true WHERE event_domain = 'iu'")
	h.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL) FROM generate_series(1, 3)")
	first := one[string](h, "SELECT min(id::text) FROM public.event_outbox WHERE event_type = 'made'")
	h.exec(`INSERT INTO public.event_outbox SELECT (jsonb_populate_record(e, jsonb_build_object('created_at', e.created_at + interval '1 s'))).* FROM public.event_outbox e WHERE e.id = $1::text::uuid`, first)
	h.poison("INSERT", "iu_route_attempt", "NEW.event_id = '"+one[string](h, "SELECT max(id::text) FROM public.event_outbox WHERE event_type = 'made'")+"'")
	eventually(t, "all are routed or dead", func() bool {
		h.justRan("iu_outbound_default", "2 seconds")
		_, _ = h.woken("iu_outbound_default")
		return one[int](h, "SELECT count(*) FROM public.iu_route_dead_letter") == 2
	})
	require.Equal(t, "ROUTE_23514 ROUTE_DUPLICATE_ID", one[string](h, "SELECT string_agg(failure_code, ' ' ORDER BY failure_code) FROM public.iu_route_dead_letter"))
	require.Equal(t, 2, one[int](h, "SELECT count(DISTINCT event_id) FROM public.iu_route_attempt"))
	require.True(t, one[bool](h, "SELECT EXISTS (SELECT FROM public.iu_route_attempt WHERE event_id = $1::text::uuid)", first))
}

// An event whose batch failed is tried in parts as itself, also if an event of another domain, which
// no batch has had yet, has its id; that event becomes a dead letter.
func TestPoisonBesideAnIDOfAnotherDomain(t *testing.T) {
	h := newHooks(t)
	h.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate'), ('kg', 'made', 's', 'immediate')")
	h.exec("UPDATE public.dot_config SET value = 'true' WHERE key IN ('iu_core.routes_master_enabled', 'iu_core.route_worker_enabled')")
	const id = "00000000-0000-4000-8000-000000000002"
	for _, domain := range []string{"kg", "iu"} {
		h.exec("INSERT INTO public.event_outbox (id, event_domain, event_type, event_stream, delivery_lane) VALUES ('"+id+"', $1, 'made', 's', 'immediate')", domain)
	}
	h.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)")
	h.poison("INSERT", "iu_route_attempt", "NEW.event_id <> '"+id+"'")
	eventually(t, "all are routed or dead", func() bool {
		h.exec("SELECT public.fn_iu_route_worker_run()")
		return one[int](h, "SELECT count(*) FROM public.iu_route_dead_letter") == 2
	})
	require.Equal(t, "iu ROUTE_23514, kg ROUTE_DUPLICATE_ID", one[string](h, "SELECT string_agg(event_domain || ' ' || failure_code, ', ' ORDER BY event_domain) FROM public.iu_route_dead_letter"))
	require.Equal(t, "iu "+id, one[string](h, "SELECT string_agg(event_domain || ' ' || event_id, ', ') FROM public.iu_route_attempt"))
}
