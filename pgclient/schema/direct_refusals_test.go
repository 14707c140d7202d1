package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestDirectWritesOfHostileValues(t *testing.T) {
	h := directState(t)
	conn := h.db.Conn(t, "")
	types := map[string]string{}
	rows, err := conn.Query(t.Context(), `SELECT format('%s may %s %s.%s', r, v, c.relname, a.attname), format_type(a.atttypid, NULL)
		FROM unnest($1::text[]) r CROSS JOIN (VALUES ('INSERT'), ('UPDATE')) v (v) JOIN pg_class c ON c.`+publicRelations+` AND c.relkind IN ('r', 'p')
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		WHERE has_column_privilege(r, c.oid, a.attnum, v)`, roles[:len(roles)-1])
	require.NoError(t, err)
	var name, kind string
	_, err = pgx.ForEachRow(rows, []any{&name, &kind}, func() error { types[name] = kind; return nil })
	require.NoError(t, err)
	require.Zero(t, one[int](h, `SELECT count(*) FROM unnest($1::text[]) r JOIN pg_class c ON c.`+publicRelations+` AND c.relkind IN ('r', 'p')
		WHERE has_table_privilege(r, c.oid, 'DELETE, TRUNCATE')`, roles[:len(roles)-1]), "nobody deletes by hand")

	listed, tried := map[string][]string{}, 0
	for _, d := range directWrites {
		if d.row != "" { // the row without a hostile value is accepted, so a refusal later is about the value
			column, expression, _ := strings.Cut(strings.SplitN(d.row, "\n", 2)[0], " = ")
			require.Equal(t, "true", d.try(t, conn, d.sql(column, expression), "true"), d.sql(column, expression))
		}
		for line := range strings.Lines(d.values) {
			part := strings.Split(strings.TrimSpace(line), " | ")
			require.Len(t, part, 3, line)
			key := d.key(part[0])
			require.Contains(t, types, key, "listed, but not granted any more")
			listed[key] = append(listed[key], part[1])
			want, condition := part[2], "true"
			if len(want) != 5 {
				want, condition = "true", part[2]
			}
			if got := d.try(t, conn, d.sql(part[0], part[1]), condition); got != want {
				t.Errorf("%s = %s: %s, not %s", key, part[1], got, part[2])
			}
			tried++
		}
	}
	for _, d := range directWrites { // whatever the column: no error quotes the row
		for key := range types {
			if column, of := strings.CutPrefix(key, d.key("")); of {
				d.try(t, conn, d.sql(column, "NULL"), "true")
				tried++
			}
		}
	}
	for key, kind := range types {
		if !strings.Contains(key, "_y2") {
			require.Contains(t, listed, key, "may be written by hand, and no hostile values are listed for it")
		}
		for _, value := range hostileFor[kind] {
			require.True(t, strings.Contains(strings.Join(listed[key], " "), value), "%s (%s): no value %s is listed", key, kind, value)
		}
	}
	t.Log(tried, "values")
}

// If two events have the same id, only one of them may count as routed. If the first has been
// routed, inserting the second is refused; otherwise the router makes it a dead letter.
func TestEventIDsThatAreThere(t *testing.T) {
	for _, begun := range []bool{true, false} { // false: the router has no cursor yet and takes its first events in the order of their ids
		t.Run(fmt.Sprint(begun), func(t *testing.T) { eventIDsThatAreThere(t, begun) })
	}
}

func eventIDsThatAreThere(t *testing.T, begun bool) {
	c := newCore(t)
	c.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	writer, operator := c.as("event_ingest_writer"), c.as("dead_letter_operator")
	if begun {
		call(t, c.root, "public.fn_iu_route_worker_run()")
	}
	const id = "00000000-0000-4000-8000-000000000002"
	const insert = "INSERT INTO public.event_outbox (id, event_domain, event_type, event_stream, delivery_lane, event_subject_ref) VALUES ($1, 'iu', 'made', 's', 'immediate', $2)"
	for _, ref := range []string{"first", "second"} {
		_, err := writer.Exec(t.Context(), insert, id, ref)
		require.NoError(t, err)
	}
	c.exec(`BEGIN; SET LOCAL session_replication_role = replica; INSERT INTO public.event_outbox (id, event_domain, event_type, event_stream, delivery_lane,
		event_subject_ref, created_at) VALUES ('00000000-0000-4000-8000-000000000003', 'iu', 'made', 's', 'immediate', 'last year', now() - interval '1 year'); COMMIT`)
	_, err := writer.Exec(t.Context(), insert, "00000000-0000-4000-8000-000000000003", "of another leaf")
	require.NoError(t, err)
	eventually(t, "all are gone through", func() bool {
		call(t, c.root, "public.fn_iu_route_worker_run('iu_outbound_default', 1)")
		return get[int](c, "SELECT count(*) FROM public.iu_route_attempt") == 2 && get[int](c, "SELECT count(*) FROM public.iu_route_dead_letter") == 2
	})
	require.Equal(t, "of another leaf second", get[string](c, `SELECT string_agg(event_snapshot ->> 'event_subject_ref', ' ' ORDER BY 1)
		FROM (SELECT event_snapshot FROM public.iu_route_dead_letter WHERE failure_code = 'ROUTE_DUPLICATE_ID' ORDER BY event_snapshot ->> 'event_subject_ref') d`))
	require.Zero(t, num(call(t, c.root, "public.fn_iu_route_worker_run()"), "events"))
	fails(t, writer, "23505", insert, id, "third")
	answer := results(t, call(t, operator, "public.fn_iu_route_dead_letter_replay((SELECT array_agg(dead_letter_id) FROM public.iu_route_dead_letter), 'ann', 'again')"))
	for _, r := range answer {
		require.Equal(t, "skipped", r["outcome"])
		require.Contains(t, r["why"], "another event has the id of this one")
	}
}

// Of two events with one id, in one domain or two, the one that the router reads first is routed and
// the other becomes a dead letter, whichever of them is the earlier one.
func TestEventIDsReadOutOfOrder(t *testing.T) {
	const id = "00000000-0000-4000-8000-000000000002"
	insert := func(domain, ref string) string {
		return "INSERT INTO public.event_outbox (id, event_domain, event_type, event_stream, delivery_lane, event_subject_ref) VALUES ('" + id + "', '" + domain + "', 'made', 's', 'immediate', '" + ref + "')"
	}
	enable := func(c *core, domain string, on bool) {
		c.exec("UPDATE public.iu_outbound_route SET enabled = $1 WHERE event_domain = $2", on, domain)
	}
	run := func(c *core) { call(c.t, c.root, "public.fn_iu_route_worker_run()") }
	for name, write := range map[string]func(c *core){
		"two domains": func(c *core) {
			c.exec(insert("kg", "earlier"))
			c.exec(insert("iu", "later"))
			run(c)
		},
		"two domains, both begun": func(c *core) {
			run(c)
			c.exec(insert("kg", "earlier"))
			c.exec(insert("iu", "later"))
			run(c)
		},
		"open transaction": func(c *core) {
			run(c)
			tx := c.begin(c.as("event_ingest_writer"))
			_, err := tx.Exec(c.t.Context(), insert("iu", "earlier"))
			require.NoError(c.t, err)
			c.exec(insert("iu", "later"))
			run(c)
			require.NoError(c.t, tx.Commit(c.t.Context()))
			run(c)
		},
		"disabled route": func(c *core) {
			enable(c, "kg", false)
			c.exec(insert("kg", "earlier"))
			c.exec(insert("iu", "later"))
			run(c)
			enable(c, "kg", true)
			run(c)
		},
		"dead letter before the first is routed": func(c *core) {
			enable(c, "iu", false)
			c.exec(insert("iu", "later"))
			c.exec(`INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
				SELECT '` + id + `', '{"event_subject_ref": "earlier"}', 'of an earlier release', 'ROUTE_DUPLICATE_ID', '', 'kg', 'iu_outbound_default'`)
			enable(c, "iu", true)
			run(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCore(t)
			c.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate'), ('kg', 'made', 's', 'immediate')")
			write(c)
			run(c)
			require.Equal(t, "iu", get[string](c, "SELECT string_agg(event_domain, ' ') FROM public.iu_route_attempt"))
			require.Equal(t, "earlier ROUTE_DUPLICATE_ID", get[string](c, "SELECT string_agg(concat_ws(' ', event_snapshot ->> 'event_subject_ref', failure_code), ', ') FROM public.iu_route_dead_letter"))
			require.Equal(t, "later", get[string](c, "SELECT string_agg(event_subject_ref, ' ') FROM public.fn_event_inbox('user:' || session_user)"))
			// a copy reads all events again
			c.exec("UPDATE public.iu_route_worker_cursor SET system_identifier = 1")
			run(c)
			require.Equal(t, "1 1", get[string](c, "SELECT concat_ws(' ', (SELECT count(*) FROM public.iu_route_attempt), (SELECT count(*) FROM public.iu_route_dead_letter))"))
		})
	}
}

// An orchestrator and a router may write to their tables directly, but only the changes that the
// functions would make are accepted.
func TestForgedWebhookStates(t *testing.T) {
	h := directState(t)
	orchestrator, router := h.db.Conn(t, pgtest.Login(t, h.db, "saga_orchestrator")), h.db.Conn(t, pgtest.Login(t, h.db, "router_worker"))
	const start, job = "UPDATE public.webhook_delivery_sagas SET status = 'InProgress', next_attempt_at = NULL WHERE id = %d; ", "INSERT INTO public.webhook_delivery_jobs (saga_id) VALUES (%d); "
	const settle = "UPDATE public.webhook_delivery_jobs SET settled_at = now() WHERE id = 1; "
	const fail = "UPDATE public.webhook_delivery_sagas SET status = 'PendingRetry', attempt_count = 1, next_attempt_at = %s WHERE id = 1; "
	forged := []string{
		fmt.Sprintf(start, 2), fmt.Sprintf(job, 2), fmt.Sprintf(job, 1), // a saga in progress without a job, a job for a saga that is not in progress
		fmt.Sprintf(start+job, 3, 3), fmt.Sprintf(start+job+job, 2, 2, 2), // a saga that is not due, two jobs for one saga
		settle, fmt.Sprintf(fail, "now()"), fmt.Sprintf(job+settle, 1),
		settle + "UPDATE public.webhook_delivery_sagas SET status = 'Completed', next_attempt_at = NULL WHERE id = 1; ",
		settle + "UPDATE public.webhook_delivery_sagas SET status = 'DeadLettered', attempt_count = 1, final_error_code = 'TIMEOUT' WHERE id = 1; " +
			"INSERT INTO public.dead_letters (saga_id, event_id, subscription_id, final_error_code, payload_snapshot) VALUES (1, 1, 1, 'TIMEOUT', '{\"n\": 1}')",
		fmt.Sprintf(start, 2) + "UPDATE public.webhook_delivery_sagas SET status = 'Completed' WHERE id = 2", // no job was ever made
		fmt.Sprintf(start, 2) + "UPDATE public.webhook_delivery_sagas SET status = 'PendingRetry', next_attempt_at = now() + interval '366 days' WHERE id = 2",
		fmt.Sprintf(start, 2) + "UPDATE public.webhook_delivery_sagas SET status = 'DeadLettered', final_error_code = 'TIMEOUT' WHERE id = 2; " +
			"INSERT INTO public.dead_letters (saga_id, event_id, subscription_id, final_error_code, payload_snapshot) " +
			"SELECT s.id, s.event_id, s.subscription_id, 'TIMEOUT', e.payload FROM public.webhook_delivery_sagas s JOIN public.events e ON e.id = s.event_id WHERE s.id = 2",
	}
	for _, sql := range forged {
		_, err := orchestrator.Exec(t.Context(), sql)
		require.Error(t, err, sql)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg)
		require.Contains(t, []string{"42501", "23505"}, pg.Code, "%s: %s", sql, pg.Message)
	}
	for _, at := range []string{"'infinity'", "'-infinity'", "now() + interval '10 years'", "now() - interval '1 hour'"} {
		_, err := orchestrator.Exec(t.Context(), settle+fmt.Sprintf(fail, at))
		refused(t, "22023", err, at)
	}
	h.exec("INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, by) VALUES (1, 'operator', 'ann')")
	_, err := orchestrator.Exec(t.Context(), fmt.Sprintf(start+job, 2, 2))
	refused(t, "42501", err, "suspended")
	h.exec("DELETE FROM public.webhook_endpoint_suspensions")
	for _, sql := range []string{fmt.Sprintf(start+job, 2, 2), settle + fmt.Sprintf(fail, "now() + interval '1 minute'")} {
		_, err := orchestrator.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	_, err = router.Exec(t.Context(), "INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) VALUES (3, 1)")
	require.NoError(t, err)
	require.Equal(t, "1 PendingRetry 1|2 InProgress 0|3 Pending 0|5 Pending 0", one[string](h, `SELECT string_agg(concat_ws(' ', id, status, attempt_count), '|' ORDER BY id)
		FROM public.webhook_delivery_sagas WHERE status <> 'DeadLettered'`))
}
