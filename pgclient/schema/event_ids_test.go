// Two events with one id: one of them is routed and the other becomes a dead letter, also if two
// runs read them at the same time, if the row of the other is gone, and if they are read twice.

package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/schema"
)

const twinID = "00000000-0000-4000-8000-000000000002"

// twin writes an event with the id twinID.
func (c *core) twin(domain string) {
	c.t.Helper()
	c.exec(`INSERT INTO public.event_outbox (id, event_domain, event_type, event_stream, delivery_lane, event_subject_ref, safe_payload)
		VALUES ('`+twinID+`', $1::text, 'made', 's', 'immediate', $1, jsonb_build_object('domain', $1))`, domain)
}

// routing switches the route of a domain.
func (c *core) routing(domain string, on bool) {
	c.t.Helper()
	c.exec("UPDATE public.iu_outbound_route SET enabled = $1 WHERE event_domain = $2", on, domain)
}

// twins returns the domains of the events that have attempts, and those of the events that became
// dead letters, each with its code.
func (c *core) twins() string {
	c.t.Helper()
	return get[string](c, `SELECT concat_ws('; ', (SELECT string_agg(DISTINCT event_domain, ' ') FROM public.iu_route_attempt WHERE event_id = '`+twinID+`'),
		(SELECT string_agg(event_domain || ' ' || failure_code, ', ' ORDER BY event_domain) FROM public.iu_route_dead_letter WHERE event_id = '`+twinID+`'))`)
}

func TestTwoRunsRouteOneID(t *testing.T) {
	for name, quick := range map[string]bool{"full": false, "quick": true} {
		t.Run(name, func(t *testing.T) {
			c := newRoutes(t)
			c.exec("UPDATE public.event_subscription SET event_domain = NULL WHERE recipient_ref = 'user:ann'")
			c.exec("INSERT INTO public.consumer_registry (consumer_id, event_domain, event_type, job_kind, executor, enabled, registered_by, updated_by) SELECT d, d, 'made', 'k', 'DOT', true, 'ann', 'ann' FROM unnest('{iu,staging}'::text[]) d")
			const staging = "SELECT public.fn_iu_route_worker_run('staging_outbound')"
			c.exec(staging)
			c.route()
			c.twin("staging")
			c.twin("iu")
			c.emit("iu", "beside it")
			tx := c.begin(c.root)
			_, err := tx.Exec(t.Context(), staging)
			require.NoError(t, err)
			other := make(chan error, 1)
			go func() {
				_, err := tryCall(c.root, "public.fn_iu_route_worker_run('iu_outbound_default', 1000, $1)", quick)
				other <- err
			}()
			eventually(t, "the other run waits", func() bool {
				return get[bool](c, "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND l.locktype = 'transactionid' AND a.datname = current_database())")
			})
			require.NoError(t, tx.Commit(t.Context()))
			err = <-other
			if quick {
				refused(t, "23505", err, "the next full run routes the batch")
			} else {
				require.NoError(t, err)
			}
			c.route()
			require.Equal(t, "staging; iu ROUTE_DUPLICATE_ID", c.twins())
			require.Equal(t, "beside it iu,staging staging", get[string](c, `SELECT string_agg(e.event_subject_ref || ' ' || j.event_domain, ',' ORDER BY j.event_domain)
				FROM public.job_queue j JOIN public.event_outbox e ON e.id = j.causation_event_id AND e.event_domain = j.event_domain`))
			require.Equal(t, 2, get[int](c, "SELECT sum(events_seen)::int FROM public.iu_route_worker_cursor WHERE event_domain = 'iu'"))
			require.Zero(t, get[int](c, "SELECT (SELECT count(*) FROM public.queue_step_pending) + (SELECT count(*) FROM public.queue_quarantine)"))
		})
	}
}

// Events of a failed batch are tried again later. Meanwhile an event of another run with the same id
// may have been routed, or may be in the same batch.
func TestPendingEventWithARoutedID(t *testing.T) {
	for name, want := range map[string]string{"routed": "staging; iu ROUTE_DUPLICATE_ID, kg ROUTE_DUPLICATE_ID", "both pending": "iu; kg ROUTE_DUPLICATE_ID"} {
		t.Run(name, func(t *testing.T) {
			c := newRoutes(t)
			c.route()
			c.routing("iu", false)
			c.routing("kg", false)
			c.twin("iu")
			c.twin("kg")
			if name == "routed" {
				c.twin("staging")
				call(t, c.root, "public.fn_iu_route_worker_run('staging_outbound')")
			}
			c.exec("INSERT INTO public.queue_step_pending (step, targets, chunk) SELECT 'event_route', array_agg(concat_ws('/', id, extract(epoch FROM created_at))), 2 FROM public.event_outbox WHERE event_domain IN ('iu', 'kg')")
			c.route()
			require.Equal(t, want, c.twins())
		})
	}
}

// An event that was not routed is not taken for routed because of another event with its id: by the
// router if the row of the other is gone, by retention, and by migrate down.
func TestUnroutedEventWithARoutedID(t *testing.T) {
	setup := func(t *testing.T) *core {
		c := newRoutes(t)
		c.routing("kg", false)
		c.twin("kg")
		c.twin("iu")
		c.route()
		require.Equal(t, "iu", c.twins())
		return c
	}
	t.Run("router", func(t *testing.T) {
		c := setup(t)
		c.exec("BEGIN; SET LOCAL session_replication_role = replica; DELETE FROM public.event_outbox WHERE event_domain = 'iu'; COMMIT")
		c.routing("kg", true)
		c.route()
		require.Equal(t, "iu; kg ROUTE_DUPLICATE_ID", c.twins())
	})
	t.Run("retention", func(t *testing.T) {
		c := setup(t)
		c.exec("BEGIN; SET LOCAL session_replication_role = replica; UPDATE public.event_outbox SET created_at = created_at - interval '130 days'; COMMIT")
		leaf := get[string](c, "SELECT to_char((now() - interval '130 days') AT TIME ZONE 'UTC', '\"event_outbox_\"YYYY_MM')")
		require.Equal(t, []any{leaf}, c.sweep()["dropped"])
		require.Equal(t, "iu; kg ROUTE_DUPLICATE_ID", c.twins())
	})
	t.Run("retention, the other waits", func(t *testing.T) {
		c := newRoutes(t)
		c.routing("iu", false)
		c.twin("kg")
		c.twin("iu")
		c.exec(`INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
			SELECT id, to_jsonb(e), 'k', 'ROUTE_DUPLICATE_ID', '', 'kg', 'iu_outbound_default' FROM public.event_outbox e WHERE event_domain = 'kg'`)
		c.exec("UPDATE public.iu_route_dead_letter SET event_snapshot = event_snapshot || jsonb_build_object('created_at', (event_snapshot ->> 'created_at')::timestamptz - interval '130 days')")
		c.exec("BEGIN; SET LOCAL session_replication_role = replica; UPDATE public.event_outbox SET created_at = created_at - interval '130 days'; COMMIT")
		leaf := get[string](c, "SELECT to_char((now() - interval '130 days') AT TIME ZONE 'UTC', '\"event_outbox_\"YYYY_MM')")
		require.Equal(t, map[string]any{leaf: "has events that no cursor has passed"}, c.sweep()["kept"])
	})
	t.Run("migrate down", func(t *testing.T) {
		c := setup(t)
		require.ErrorContains(t, schema.Down(t.Context(), c.db.DSN(""), schema.DownOptions{}, nil), "1 unrouted event,")
	})
}

// An event that a new cursor or a restored copy reads twice, by id and then in its order, is not the
// later one of two with its id the second time.
func TestEventReadTwiceWithAnIDThatIsThereTwice(t *testing.T) {
	c := newRoutes(t)
	c.routing("kg", false)
	c.exec(`INSERT INTO public.event_outbox (id, event_domain, event_type, event_stream, delivery_lane, event_subject_ref)
		VALUES ('00000000-0000-4000-8000-000000000001', 'iu', 'made', 's', 'immediate', 'first')`)
	run := func() { call(t, c.root, "public.fn_iu_route_worker_run('iu_outbound_default', 1)") }
	run()
	c.twin("iu")
	c.twin("kg")
	for range 4 {
		run()
	}
	require.Equal(t, "iu", c.twins())
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.iu_route_worker_cursor WHERE event_domain = 'iu' AND restored_after IS NOT NULL"))
	c.routing("kg", true)
	c.route()
	require.Equal(t, "iu; kg ROUTE_DUPLICATE_ID", c.twins())
}

// Of several events with one id, the payload of the one that was routed is shown.
func TestPayloadOfAnIDThatIsThereTwice(t *testing.T) {
	for _, routed := range []string{"iu", "kg"} {
		t.Run(routed, func(t *testing.T) {
			c := newRoutes(t)
			c.routing("iu", routed == "iu")
			c.routing("kg", routed == "kg")
			c.twin("iu")
			c.twin("kg")
			c.route()
			for range 2 { // without and with the dead letter of the other
				require.Equal(t, routed, get[string](c, "SELECT public.fn_payload_reveal('event_outbox', $1, 'ann', 'test') -> 'payload' ->> 'domain'", twinID))
				c.routing("iu", true)
				c.routing("kg", true)
				c.route()
			}
		})
	}
}

// Of two dead letters whose events have one id, a replay routes one and refuses the other, in one call
// or in two, whether or not the events have a recipient in common.
func TestReplayOfTwoEventsWithOneID(t *testing.T) {
	for name, everyDomain := range map[string]bool{"one recipient": true, "no common recipient": false} {
		t.Run(name, func(t *testing.T) {
			c := newRoutes(t)
			if everyDomain {
				c.exec("UPDATE public.event_subscription SET event_domain = NULL WHERE recipient_ref = 'user:ann'")
			}
			c.twin("iu")
			c.twin("staging")
			c.exec(`INSERT INTO public.iu_route_dead_letter (dead_letter_id, event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
				SELECT CASE r.event_domain WHEN 'iu' THEN '00000000-0000-4000-8000-00000000000a' ELSE '00000000-0000-4000-8000-00000000000b' END::uuid,
					e.id, to_jsonb(e), r.worker_name || ':' || e.id, 'ROUTE_22000', 'no', r.event_domain, r.worker_name
				FROM public.event_outbox e JOIN public.iu_outbound_route r USING (event_domain)`)
			replay := func(ids string) string {
				return outcomes(call(t, c.root, "public.fn_iu_route_dead_letter_replay($1::text::uuid[], 'ann', 'cured')", ids))
			}
			const iu, staging = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
			require.Equal(t, "replayed failed", replay("{"+iu+","+staging+"}"))
			require.Equal(t, "iu; iu ROUTE_22000, staging ROUTE_DUPLICATE_ID", c.twins())
			require.Equal(t, "replayed", get[string](c, "SELECT resolution FROM public.iu_route_dead_letter WHERE dead_letter_id = $1", iu))
			c.exec("UPDATE public.iu_route_dead_letter SET failure_code = 'ROUTE_22000' WHERE resolved_at IS NULL")
			require.Equal(t, "failed", replay("{"+staging+"}"))
			require.Equal(t, "iu; iu ROUTE_22000, staging ROUTE_DUPLICATE_ID", c.twins())
			require.Equal(t, "skipped", replay("{"+staging+"}"))
		})
	}
}
