// A refusal names the wrong value and its row in the call, and comes from a check of qtop, not from
// an index.

package schema_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestBatchRefusalsNameTheRow(t *testing.T) {
	h := newCore(t)
	h.exec("INSERT INTO public.executor_producer VALUES ('Codex', 'router_worker')")
	producer := h.as("event_ingest_writer")
	good := `{"job_kind": "k", "event_domain": "iu", "executor": "Agent"}`
	with := func(field, value string) string {
		fields := map[string]string{"job_kind": `"k"`, "event_domain": `"iu"`, "executor": `"Agent"`}
		fields[field] = value
		var list []string
		for _, k := range []string{"job_kind", "event_domain", "executor", field} {
			if v := fields[k]; v != "" && !slices.Contains(list, fmt.Sprintf("%q: %s", k, v)) {
				list = append(list, fmt.Sprintf("%q: %s", k, v))
			}
		}
		return "{" + strings.Join(list, ", ") + "}"
	}
	long := strings.Repeat("x", 3000)
	for bad, says := range map[string]string{
		`7`:                                                       `p_jobs[2] must be a JSON object, not 7`,
		with("job_kind", `""`):                                    `p_jobs[2].job_kind must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$, not be ""`,
		with("job_kind", ``):                                      `p_jobs[2].job_kind must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$, not be null`,
		with("event_domain", `"A"`):                               `p_jobs[2].event_domain must match ^[a-z][a-z0-9_]{0,50}$, not be "A"`,
		with("executor", `"MOT"`):                                 `p_jobs[2].executor must be `,
		with("executor", `"Codex"`):                               `p_jobs[2]: `,
		with("payload", `[]`):                                     `p_jobs[2].payload must be a JSON object, not a JSON array`,
		with("payload", `{"token": "s3cret"}`):                    `p_jobs[2].payload may not hold the key token: it carries references, not content`,
		with("priority", `1001`):                                  `p_jobs[2].priority must be 0 to 1000, not 1001`,
		with("priority", `"high\u202e"`):                          `p_jobs[2].priority must be 0 to 1000, not "high?"`,
		with("priority", `1.5`):                                   `p_jobs[2].priority must be 0 to 1000, not 1.5`,
		with("process_after", `"soon"`):                           `p_jobs[2].process_after must be a time of the years 1 to 9999, not "soon"`,
		with("process_after", `"infinity"`):                       `p_jobs[2].process_after must be a time of the years 1 to 9999, not "infinity"`,
		with("max_attempts", `0`):                                 `p_jobs[2].max_attempts must be 1 to 1000, not 0`,
		with("max_attempts", `99999999999`):                       `p_jobs[2].max_attempts must be 1 to 1000, not 99999999999`,
		with("idempotency_key", `"`+long+`"`):                     `p_jobs[2].idempotency_key must have 1 to 500 characters, not 3000`,
		with("idempotency_key", `""`):                             `p_jobs[2].idempotency_key must have 1 to 500 characters, not 0`,
		with("actor", `"`+long+`"`):                               `p_jobs[2].actor must have at most 200 characters, not 3000`,
		with("proces_after", `"2200-01-01"`):                      `p_jobs[2]: the key "proces_after" is none of job_kind, `,
		with("priority", `{"x": "`+strings.Repeat("é", 400)+`"}`): `p_jobs[2].priority must be 0 to 1000, not {"x": "?`,
	} {
		_, err := producer.Exec(t.Context(), "SELECT public.fn_job_enqueue_many($1::jsonb)", "["+good+","+good+","+bad+","+with("priority", "-1")+"]")
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, bad)
		require.True(t, strings.HasPrefix(pg.Message, says), "%s\n%s", pg.Message, says)
		require.Less(t, len(pg.Message), 500)
		require.NotContains(t, pg.Message, "s3cret")
	}
	for bad, says := range map[string]string{
		with("executor", `"Codex"`):                                     `may not enqueue for executor kind Codex`,
		with("idempotency_key", `"a", "scope": "queue_owner"`):          `may not use idempotency keys of scope queue_owner`,
		with("idempotency_key", `"same", "payload": {"n": 1}`):          ``,
		with("idempotency_key", `"same2", "payload": {"n": 2}`):         ``,
		with("job_kind", `"k", "idempotency_key": "", "actor": "a"`):    `p_jobs[2].idempotency_key must`,
		with("job_kind", `"k", "max_attempts": 1, "priority": "x"`):     `p_jobs[2].priority must`,
		with("job_kind", `"k", "process_after": "x", "priority": 1000`): `p_jobs[2].process_after must`,
	} {
		_, err := producer.Exec(t.Context(), "SELECT public.fn_job_enqueue_many($1::jsonb)", "["+good+","+good+","+bad+"]")
		if says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "p_jobs[2]")
	}
	_, err := producer.Exec(t.Context(), "SELECT public.fn_job_enqueue_many($1::jsonb)", "["+good+","+with("idempotency_key", `"same", "payload": {"n": 3}`)+"]")
	require.ErrorContains(t, err, "p_jobs[1]: idempotency key same of scope ")

	// reports of webhook results
	worker := h.as("webhook_worker")
	result := `{"job_id": 1, "lease_token": "t", "delivered": true, "status": 200}`
	for bad, says := range map[string]string{
		`"x"`: `p_results[1] must be a JSON object, not "x"`,
		`{"job_id": "x", "lease_token": "t", "delivered": true, "status": 200}`:                     `p_results[1].job_id must be a bigint, not "x"`,
		`{"job_id": 2, "lease_token": "t", "delivered": "?", "status": 200}`:                        `p_results[1].delivered must be a boolean, not "?"`,
		`{"job_id": 2, "lease_token": "t", "delivered": false, "code": "NONE"}`:                     `p_results[1].code: unknown error code "NONE"`,
		`{"job_id": 2, "lease_token": "t", "delivered": true, "status": 404}`:                       `p_results[1], job 2: delivered = true needs a status of 200 to 299 and no code, not status 404 and code null`,
		`{"job_id": 1, "lease_token": "t", "delivered": true, "status": 200}`:                       `p_results[0], job 1: the call holds two results of this job: send one`,
		`{"job_id": 2, "lease_token": "t", "delivered": false, "code": "HTTP_500", "status": 7000}`: `p_results[1], job 2: status must be 100 to 999 or null, not 7000`,
	} {
		_, err := worker.Exec(t.Context(), "SELECT public.fn_webhook_job_report($1::jsonb)", "["+result+","+bad+"]")
		refused(t, "22023", err, bad)
		require.ErrorContains(t, err, says)
	}

	// arguments that are lists
	admin, executor := h.as("workflow_admin", "dead_letter_operator"), h.as("dot_executor")
	id := "00000000-0000-4000-8000-000000000001"
	fails(t, executor, "22023", "SELECT public.fn_job_start($1, $2)", []string{id, id}, []string{id})
	_, err = executor.Exec(t.Context(), "SELECT public.fn_job_start($1, $2)", []string{id, id}, []string{id})
	require.ErrorContains(t, err, "not 2 and 1")
	_, err = executor.Exec(t.Context(), "SELECT public.fn_job_fail($1, $1, '{X}', '{said,said}', '{true}')", []string{id, id})
	require.ErrorContains(t, err, "not 2, 1, 2 and 1")
	_, err = worker.Exec(t.Context(), "SELECT public.fn_webhook_job_renew('{1,2}', $1)", []string{id})
	require.ErrorContains(t, err, "not 2 and 1")
	_, err = admin.Exec(t.Context(), "SELECT public.fn_job_cancel($1, 'ann', 'why')", []*string{&id, nil})
	require.ErrorContains(t, err, "id 2 of the list is null")
	_, err = admin.Exec(t.Context(), "SELECT public.fn_dead_letter_resolve('{1,NULL}', 'abandoned', 'why', 'ann')")
	require.ErrorContains(t, err, "p_dead_letter_ids[2] is null")
	_, err = admin.Exec(t.Context(), "SELECT public.fn_queue_bulk_plan('requeue_webhook', '{1,x}', 'all', 1, NULL, NULL, 'ann', 'why')")
	require.ErrorContains(t, err, `p_ids[2]: "x" is not a dead letter that requeue_webhook accepts`)
	for _, kind := range []string{"requeue_webhook", "resolve"} { // otherwise no outcome would be found for it
		_, err = admin.Exec(t.Context(), "SELECT public.fn_queue_bulk_plan($1, '{0042}', 'all', 1, NULL, NULL, 'ann', 'why')", kind)
		require.ErrorContains(t, err, `p_ids[1]: "0042" is not a dead letter that `+kind+" accepts")
	}
}

// A value that is within the bounds of the arguments also fits into the indexes, even with
// characters of four bytes that cannot be compressed.
func TestArgumentsFitTheIndexes(t *testing.T) {
	c := newCore(t)
	c.exec(`CREATE FUNCTION public.wild(n int) RETURNS text LANGUAGE sql VOLATILE AS $$
		SELECT string_agg(chr(131072 + (random() * 40000)::int), '') FROM generate_series(1, n) $$`)
	c.exec("INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane) VALUES ('iu', 'a', 'alert', 'immediate'), ('iu', public.wild(200), 's', 'immediate')")
	every := []string{
		"SELECT public.fn_job_enqueue(rpad('k', 100, 'k'), rpad('d', 51, 'd'), 'Agent', p_idempotency_key => public.wild($1))",
		`SELECT public.fn_job_enqueue_many(jsonb_build_array(jsonb_build_object('job_kind', 'k', 'event_domain', 'iu', 'executor', 'Agent', 'idempotency_key', public.wild($1))))`,
		"SELECT public.fn_iu_emit_event('iu', (SELECT event_type FROM public.event_type_registry WHERE event_stream = 's'), 's', 'immediate', 'info', NULL, NULL, p_idempotency_key => public.wild($1))",
		"SELECT public.fn_iu_emit_event('iu', public.wild($1), 's', 'immediate', 'info', NULL, NULL, p_idempotency_key => 'key')",
		"SELECT public.fn_iu_save(public.wild($1), 'b', 'ann')",
		"SELECT public.fn_iu_save('x' || random(), 'b', 'ann', public.wild($1), public.wild($1))",
		"SELECT public.fn_event_subscription_add('user:' || public.wild(least($1, 195)), 'iu', public.wild(least($1, 200)), public.wild(least($1, 200)), public.wild(least($1, 200)), jsonb_build_object('a', public.wild($1)), 'ann', 'why')",
		"SELECT public.fn_dot_config_set('queue.retry.schedule.' || public.wild($1), '5s', 'ann', 'why')",
		"SELECT public.fn_iu_notification_mark_read(public.wild($1), ARRAY(SELECT id FROM public.iu_notification_event))",
		"INSERT INTO public.events (event_type, payload, external_event_id) VALUES ('order', '{}', public.wild($1))",
		"SELECT public.fn_queue_heartbeat_register(public.wild($1), 'DOT', '{iu}', 60, 300, 'ann')",
		"SELECT public.fn_consumer_set(public.wild($1), 'iu', public.wild(least($1, 200)), 'k', 'Agent', true, 'ann', 'why')",
		"SELECT public.fn_queue_mark(public.wild($1), 'ann')",
	}
	c.exec("SELECT public.fn_iu_comment((public.fn_iu_save('u', 'b', 'ann') ->> 'unit_id')::uuid, 'b', 'ann')")
	for _, sql := range every {
		for _, n := range []int{1, 100, 195, 200, 250, 255, 400, 500, 501, 700, 1000, 3000} {
			_, err := c.root.Exec(t.Context(), sql, pgx.QueryExecModeExec, n)
			if err == nil {
				continue
			}
			var pg *pgconn.PgError
			require.ErrorAs(t, err, &pg)
			require.NotEqual(t, "54000", pg.Code, "%s with %d: %s", sql, n, pg.Message)
			require.NotContains(t, pg.Message, "index row", sql)
		}
	}
}

// p_dry_run = NULL is a dry run: every function that has this argument writes nothing then, not
// even an audit row.
func TestDryRunIsNull(t *testing.T) {
	c := newCore(t)
	c.exec("SELECT public.fn_queue_executor_register('e1', 'DOT', '{iu}', 60, 300, 'dot_executor', 'ann')")
	c.exec("INSERT INTO public.events (event_type, payload) VALUES ('order', '{}')")
	c.exec("INSERT INTO public.job_queue (job_id, job_kind, event_domain, executor) VALUES ('00000000-0000-4000-8000-000000000001', 'k', 'iu', 'DOT')")
	c.exec("UPDATE public.dot_config SET value = 'true' WHERE key IN ('queue.job_substrate.enabled', 'queue.dlq.replay_enabled')")
	rows, err := c.root.Query(t.Context(), `SELECT p.proname::text, p.proargnames[1:p.pronargs]::text[], ARRAY(SELECT format_type(a, NULL) FROM unnest(p.proargtypes::oid[]) a), p.prosrc
		FROM pg_proc p WHERE `+publicFunctions+` AND 'p_dry_run' = ANY (p.proargnames) ORDER BY 1`)
	require.NoError(t, err)
	type function struct {
		Name        string
		Args, Types []string
		Source      string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	require.NoError(t, err)
	require.Greater(t, len(all), 20)
	raw := regexp.MustCompile(`COALESCE\(p_dry_run, (true|false)\)`)
	for _, f := range all {
		require.NotContains(t, raw.FindAllString(f.Source, -1), "COALESCE(p_dry_run, false)", f.Name)
		if strings.HasSuffix(f.Name, "_answer") || strings.HasSuffix(f.Name, "_refusal") {
			continue // internal: the caller has already replaced NULL
		}
		var list []string
		for i, a := range f.Args {
			v := first(usual[f.Name+"."+a], usual[a], usual[f.Types[i]], "NULL")
			if a == "p_dry_run" {
				v = "NULL"
			}
			list = append(list, fmt.Sprintf("%s => (%s)::%s", a, v, f.Types[i]))
		}
		sql := fmt.Sprintf("SELECT public.%s(%s)", f.Name, strings.Join(list, ", "))
		err := pgx.BeginFunc(t.Context(), c.root, func(tx pgx.Tx) error {
			written := func() (n int64) {
				require.NoError(t, tx.QueryRow(t.Context(), `SELECT sum(pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid) + pg_stat_get_xact_tuples_deleted(oid))::bigint
					FROM pg_class WHERE `+publicRelations).Scan(&n))
				return n
			}
			before := written()
			if _, err := tx.Exec(t.Context(), sql); err != nil {
				return err
			}
			if n := written() - before; n != 0 {
				return fmt.Errorf("%d rows were written", n)
			}
			return nil
		})
		require.NoError(t, err, "%s: an example value of each argument is in usual (text_bounds_test.go)", sql)
	}
}

// A NULL in the list of subscriptions to skip is ignored: a claim skips the other subscriptions of
// the list, and only these.
func TestClaimSkipsPastNull(t *testing.T) {
	h := newHooks(t)
	first, second := h.subscribe("order"), h.subscribe("order")
	h.exec("UPDATE public.subscriptions SET rate_limit_per_second = 100 WHERE id = $1", second) // the second one is claimed within a rate limit
	h.emit("order", 3)
	h.route()
	h.step()
	claimed := func(skip ...any) (subs []int64) {
		rows, err := h.work.Query(t.Context(), "SELECT subscription_id FROM public.fn_webhook_job_claim('w', 2, $1::bigint[], 1)", skip)
		require.NoError(t, err)
		subs, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		require.NoError(t, err)
		return subs
	}
	require.Equal(t, []int64{second}, claimed(nil, first))
	require.Equal(t, []int64{first}, claimed(second, nil))
	require.ElementsMatch(t, []int64{first, second}, claimed(nil, nil))
}
