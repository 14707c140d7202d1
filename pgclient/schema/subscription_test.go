// Event subscriptions: which recipients an event reaches, step by step; how a subscription is
// added, muted and unmuted; who may read events as which recipient; and every off switch of DP6 §7.

package schema_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// The rows that DP6 §3.1 lists, and the three rows that existed before it.
func TestSubscriptionRowsOfTheDesign(t *testing.T) {
	c := newCore(t)
	require.Equal(t, "recipient_ref event_domain event_type event_stream scope_subject_table scope_filter mute",
		get[string](c, `SELECT string_agg(column_name, ' ' ORDER BY ordinal_position) FROM information_schema.columns
			WHERE table_schema = 'public' AND table_name = 'event_subscription' AND column_name <> 'subscription_id'`))
	for _, row := range [][]any{
		{"role:workflow_admin", "staging", nil, "birth"},
		{"role:workflow_admin", "staging", nil, "update"},
		{"role:dot_executor", "dot", nil, nil},
		{"agency:integrity", "health", nil, "alert"},
		{"role:kg_indexer", "kg", nil, nil},
		{"role:auto_instantiator", "iu", "template.instance_auto_composed", "update"},
		{"role:health_owner", "system", "issue_opened", nil},
		{"role:health_owner", "system", "issue_resolved", nil},
		{"agency:sysop", nil, nil, "alert"},
	} {
		require.Equal(t, 1, get[int](c, `SELECT count(*) FROM public.event_subscription WHERE recipient_ref = $1 AND event_domain IS NOT DISTINCT FROM $2
			AND event_type IS NOT DISTINCT FROM $3 AND event_stream IS NOT DISTINCT FROM $4 AND scope_subject_table IS NULL AND scope_filter = '{}' AND NOT mute`, row...), row)
	}
	require.Equal(t, 9, get[int](c, "SELECT count(*) FROM public.event_subscription"))
}

// The cases of DP6 §3.2. A subscription is an event subscription: recipient, domain, type, stream, table,
// filter, mute; - is NULL. Unless a case has another event, the event is shop/paid in stream money
// about table orders with {"region": "eu", "n": {"k": 1}}.
func TestResolveTable(t *testing.T) {
	c := newCore(t)
	c.exec("DELETE FROM public.event_subscription")
	type subscription [7]string
	type event struct{ domain, kind, stream, table, payload string }
	paid := event{"shop", "paid", "money", "orders", `{"region": "eu", "n": {"k": 1}}`}
	const no, yes = "f", "t"
	for _, x := range []struct {
		name          string
		subscriptions []subscription
		off           bool
		event         event
		want          string
	}{
		{"nobody", nil, false, paid, "broadcast 5"},
		{"step 1: all equal", []subscription{{"user:a", "shop", "paid", "money", "-", "{}", no}}, false, paid, "user:a 1"},
		{"step 2: every type", []subscription{{"user:a", "shop", "-", "money", "-", "{}", no}}, false, paid, "user:a 2"},
		{"step 3: every stream", []subscription{{"user:a", "shop", "paid", "-", "-", "{}", no}}, false, paid, "user:a 3"},
		{"step 4: the domain", []subscription{{"user:a", "shop", "-", "-", "-", "{}", no}}, false, paid, "user:a 4"},
		{"step 1, every domain", []subscription{{"user:a", "-", "paid", "money", "-", "{}", no}}, false, paid, "user:a 1"},
		{"step 2, every domain", []subscription{{"user:a", "-", "-", "money", "-", "{}", no}}, false, paid, "user:a 2"},
		{"step 3, every domain", []subscription{{"user:a", "-", "paid", "-", "-", "{}", no}}, false, paid, "user:a 3"},
		{"step 4, every domain", []subscription{{"user:a", "-", "-", "-", "-", "{}", no}}, false, paid, "user:a 4"},
		{"another domain", []subscription{{"user:a", "kg", "paid", "money", "-", "{}", no}}, false, paid, "broadcast 5"},
		{"another type", []subscription{{"user:a", "shop", "lost", "money", "-", "{}", no}}, false, paid, "broadcast 5"},
		{"another stream", []subscription{{"user:a", "shop", "paid", "alert", "-", "{}", no}}, false, paid, "broadcast 5"},
		{"all steps, one recipient, the best", []subscription{
			{"user:a", "shop", "-", "-", "-", "{}", no},
			{"user:a", "shop", "paid", "-", "-", "{}", no},
			{"user:a", "shop", "-", "money", "-", "{}", no},
			{"user:a", "shop", "paid", "money", "-", "{}", no},
		}, false, paid, "user:a 1"},
		{"the best is muted", []subscription{
			{"user:a", "shop", "-", "-", "-", "{}", no},
			{"user:a", "shop", "paid", "-", "-", "{}", no},
			{"user:a", "shop", "-", "money", "-", "{}", no},
			{"user:a", "shop", "paid", "money", "-", "{}", yes},
		}, false, paid, "user:a 2"},
		{"two are muted", []subscription{
			{"user:a", "shop", "-", "-", "-", "{}", no},
			{"user:a", "shop", "paid", "-", "-", "{}", no},
			{"user:a", "shop", "-", "money", "-", "{}", yes},
			{"user:a", "shop", "paid", "money", "-", "{}", yes},
		}, false, paid, "user:a 3"},
		{"a recipient per step", []subscription{
			{"user:d", "shop", "-", "-", "-", "{}", no},
			{"user:c", "-", "paid", "-", "-", "{}", no},
			{"user:b", "shop", "-", "money", "-", "{}", no},
			{"user:a", "-", "paid", "money", "-", "{}", no},
		}, false, paid, "user:a 1,user:b 2,user:c 3,user:d 4"},
		{"muted, step 1", []subscription{{"user:a", "shop", "paid", "money", "-", "{}", yes}}, false, paid, "broadcast 5"},
		{"muted, step 4, every domain", []subscription{{"user:a", "-", "-", "-", "-", "{}", yes}}, false, paid, "broadcast 5"},
		{"a mute is one row's, not the recipient's", []subscription{
			{"user:a", "shop", "-", "-", "-", "{}", yes},
			{"user:a", "-", "-", "-", "-", "{}", no},
		}, false, paid, "user:a 4"},
		{"scope: the table", []subscription{{"user:a", "shop", "paid", "-", "orders", "{}", no}}, false, paid, "user:a 3"},
		{"scope: another table", []subscription{{"user:a", "shop", "paid", "-", "units", "{}", no}}, false, paid, "broadcast 5"},
		{"scope: a table, the event has none", []subscription{{"user:a", "shop", "paid", "-", "orders", "{}", no}}, false, event{"shop", "paid", "money", "", "{}"}, "broadcast 5"},
		{"scope: part of the payload", []subscription{{"user:a", "shop", "-", "money", "-", `{"region": "eu"}`, no}}, false, paid, "user:a 2"},
		{"scope: deep in the payload", []subscription{{"user:a", "-", "-", "-", "-", `{"n": {"k": 1}}`, no}}, false, paid, "user:a 4"},
		{"scope: another payload", []subscription{{"user:a", "shop", "paid", "money", "-", `{"region": "us"}`, no}}, false, paid, "broadcast 5"},
		{"scope: table and payload", []subscription{{"user:a", "shop", "paid", "money", "orders", `{"region": "eu"}`, no}}, false, paid, "user:a 1"},
		{"scope: the table, not the payload", []subscription{{"user:a", "shop", "paid", "money", "orders", `{"region": "us"}`, no}}, false, paid, "broadcast 5"},
		{"scope: the payload, not the table", []subscription{{"user:a", "shop", "paid", "money", "units", `{"region": "eu"}`, no}}, false, paid, "broadcast 5"},
		{"scope, and muted", []subscription{{"user:a", "shop", "paid", "money", "orders", `{"region": "eu"}`, yes}}, false, paid, "broadcast 5"},
		{"scoped out of the best step", []subscription{
			{"user:a", "shop", "paid", "money", "units", "{}", no},
			{"user:a", "shop", "-", "-", "-", "{}", no},
		}, false, paid, "user:a 4"},
		{"off: step 1", []subscription{{"user:a", "shop", "paid", "money", "-", "{}", no}}, true, paid, "broadcast 5"},
		{"off: every domain", []subscription{{"user:a", "-", "-", "-", "-", "{}", no}}, true, paid, "broadcast 5"},
		{"off: nobody", nil, true, paid, "broadcast 5"},
	} {
		c.exec("DELETE FROM public.event_subscription")
		for _, r := range x.subscriptions {
			c.exec(`INSERT INTO public.event_subscription (recipient_ref, event_domain, event_type, event_stream, scope_subject_table, scope_filter, mute)
				VALUES ($1, NULLIF($2, '-'), NULLIF($3, '-'), NULLIF($4, '-'), NULLIF($5, '-'), $6, $7::text::boolean)`, r[0], r[1], r[2], r[3], r[4], r[5], r[6])
		}
		c.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'queue.subscription_resolution.enabled'", map[bool]string{true: "false", false: "true"}[x.off])
		require.Equal(t, x.want, get[string](c, `SELECT string_agg(recipient_ref || ' ' || step, ',' ORDER BY recipient_ref)
			FROM public.fn_event_resolve_recipients($1, $2, $3, NULLIF($4, ''), $5)`, x.event.domain, x.event.kind, x.event.stream, x.event.table, x.event.payload), x.name)
		// fn_event_resolve_explain returns the same recipients.
		require.Equal(t, x.want, get[string](c, `SELECT COALESCE(string_agg(recipient_ref || ' ' || step, ',' ORDER BY recipient_ref) FILTER (WHERE outcome = 'taken'), 'broadcast 5')
			FROM public.fn_event_resolve_explain($1, $2, $3, NULLIF($4, ''), $5)`, x.event.domain, x.event.kind, x.event.stream, x.event.table, x.event.payload), x.name)
	}
}

func TestResolveExplainNamesEverySubscription(t *testing.T) {
	c := newCore(t)
	c.exec("DELETE FROM public.event_subscription")
	c.exec(`INSERT INTO public.event_subscription (recipient_ref, event_domain, event_type, event_stream, scope_subject_table, scope_filter, mute) VALUES
		('user:a', 'shop', 'paid', 'money', NULL, '{}', false), ('user:a', 'shop', NULL, NULL, NULL, '{}', false), ('user:b', NULL, NULL, 'money', NULL, '{}', true),
		('user:c', 'shop', 'paid', NULL, 'orders', '{}', false), ('user:d', NULL, NULL, NULL, NULL, '{"x": 1}', false), ('user:e', 'kg', NULL, NULL, NULL, '{}', false)`)
	explain := func() string {
		return get[string](c, `SELECT string_agg(step || ' ' || recipient_ref || ' ' || outcome, ', ') FROM public.fn_event_resolve_explain('shop', 'paid', 'money')`)
	}
	require.Equal(t, "1 user:a taken, 2 user:b muted, 3 user:c subject_table, 4 user:a better, 4 user:d filter", explain())
	setFlag(t, c.as("workflow_admin"), "queue.subscription_resolution.enabled", "false")
	require.Equal(t, "1 user:a off, 2 user:b off, 3 user:c off, 4 user:a off, 4 user:d off", explain())
}

func TestSubscriptionLifecycle(t *testing.T) {
	c := newCore(t)
	admin := c.wide(6, "workflow_admin")
	add := `public.fn_event_subscription_add('user:ann', 'shop', 'paid', NULL, 'orders', '{"region": "eu"}', 'ann', 'she asked', $1)`
	require.Nil(t, call(t, admin, add, true)["refused"])
	require.Equal(t, 9, get[int](c, "SELECT count(*) FROM public.event_subscription"), "a dry run changes nothing")
	got := together(t, 6, func(int) (map[string]any, error) { return tryCall(admin, add, false) })
	require.Equal(t, 5, count(got, "rule", "exists"), got)
	id := get[int](c, "SELECT subscription_id FROM public.event_subscription WHERE recipient_ref = 'user:ann'")
	require.Equal(t, "5 1", get[string](c, `SELECT count(*) FILTER (WHERE outcome = 'refused: exists') || ' ' || count(*) FILTER (WHERE outcome = 'done' AND after ->> 'event_type' = 'paid')
		FROM public.queue_operator_action WHERE action = 'event_subscription_add'`))

	mute := "public.fn_event_subscription_mute($1, $2, 'ben' , 'too loud', $3)"
	require.Equal(t, true, call(t, admin, mute, id, true, true)["dry_run"])
	require.False(t, get[bool](c, "SELECT mute FROM public.event_subscription WHERE subscription_id = $1", id))
	got = together(t, 6, func(int) (map[string]any, error) { return tryCall(admin, mute, id, true, false) })
	require.Equal(t, 5, count(got, "rule", "unchanged"), "two operators, one mute")
	require.Contains(t, call(t, admin, mute, id, true, false)["reason"], "last changed by ben")
	require.Contains(t, call(t, admin, add, false)["reason"], "muted: unmute it")
	require.Equal(t, "false true too loud", get[string](c, `SELECT concat_ws(' ', before ->> 'mute', after ->> 'mute', reason) FROM public.queue_operator_action
		WHERE action = 'event_subscription_mute' AND outcome = 'done'`))
	require.Nil(t, call(t, admin, mute, id, false, false)["refused"])
	require.Equal(t, "not_found", call(t, admin, mute, 999999, true, false)["rule"])

	for _, bad := range []string{
		"'ann', NULL, NULL, NULL, NULL, NULL", "'user:', NULL, NULL, NULL, NULL, NULL", "NULL, NULL, NULL, NULL, NULL, NULL", "'user:a', 'Shop', NULL, NULL, NULL, NULL",
		"'user:a', NULL, '', NULL, NULL, NULL", "'user:a', NULL, NULL, pg_catalog.repeat('x', 201), NULL, NULL", "'user:a', NULL, NULL, NULL, '', NULL", "'user:a', NULL, NULL, NULL, NULL, '[1]'",
	} {
		fails(t, admin, "22023", "SELECT public.fn_event_subscription_add("+bad+", 'ann', 'why')")
	}
	fails(t, admin, "22023", "SELECT public.fn_event_subscription_add('user:b', NULL, NULL, NULL, NULL, NULL, 'ann', '')")
	fails(t, admin, "22023", "SELECT public.fn_event_subscription_mute(1, NULL, 'ann', 'why')")
	for _, role := range []string{"queue_viewer", "dot_executor", "dead_letter_operator", "event_ingest_writer"} {
		fails(t, c.as(role), "42501", "SELECT "+"public.fn_event_subscription_mute(1, true, 'eve', 'x')")
		fails(t, c.as(role), "42501", "SELECT public.fn_event_subscription_add('user:eve', NULL, NULL, NULL, NULL, NULL, 'eve', 'x')")
	}

	// DP6 §6 lets a workflow_admin write the rows directly; each such write is audited, too.
	hand := c.as("workflow_admin")
	_, err := hand.Exec(context.Background(), "UPDATE public.event_subscription SET mute = true WHERE subscription_id = $1", id)
	require.NoError(t, err)
	require.Equal(t, "written to the table by hand true", get[string](c, `SELECT reason || ' ' || (after ->> 'mute') FROM public.queue_operator_action
		WHERE action = 'event_subscription_write' AND actor = db_role AND db_role <> 'postgres' ORDER BY id DESC LIMIT 1`))
	written := "SELECT count(*) FROM public.queue_operator_action WHERE action = 'event_subscription_write'"
	before := get[int](c, written)
	_, err = hand.Exec(context.Background(), "DO $$ BEGIN UPDATE public.event_subscription SET mute = false /* public.fn_event_subscription_mute( */; END $$")
	require.NoError(t, err)
	require.Equal(t, before+10, get[int](c, written), "the words of a statement do not pass for the function")
}

// A recipient reads the events that were routed to it or broadcast, through a login that may act as
// this recipient.
func TestEventReadNeedsAResolution(t *testing.T) {
	c := newRoutes(t)
	ann, kg := pgtest.Login(t, c.db, "dot_executor"), pgtest.Login(t, c.db, "queue_viewer", "workflow_admin")
	c.exec("UPDATE public.event_subscription SET recipient_ref = 'user:" + ann + "' WHERE recipient_ref = 'user:ann'")
	c.exec("UPDATE public.event_subscription SET recipient_ref = 'role:workflow_admin' WHERE recipient_ref = 'role:kg_indexer'")
	c.exec("INSERT INTO public.event_type_registry VALUES ('lost', 'made', 's', 'immediate')")
	for domain, ref := range map[string]string{"iu": "1", "kg": "2", "lost": "3"} {
		c.emit(domain, ref)
	}
	eventually(t, "routed", func() bool {
		call(t, c.root, "public.fn_iu_route_worker_run()")
		return get[int](c, "SELECT count(*) FROM public.iu_route_attempt") == 3
	})
	event := func(ref string) string {
		return get[string](c, "SELECT id::text FROM public.event_outbox WHERE event_subject_ref = $1", ref)
	}
	inbox := func(login, as string, unread bool) (refs string) {
		t.Helper()
		require.NoError(t, c.db.Conn(t, login).QueryRow(context.Background(), `SELECT COALESCE(string_agg(event_subject_ref || ' ' || step, ',' ORDER BY event_subject_ref), '')
			FROM public.fn_event_inbox($1, $2)`, as, unread).Scan(&refs))
		return refs
	}
	require.Equal(t, "1 4,3 5", inbox(ann, "user:"+ann, true), "its own, and what goes to everybody")
	require.Equal(t, "2 4,3 5", inbox(kg, "role:workflow_admin", true), "a member of the role")
	pool := c.db.Pool(t, ann)
	for _, as := range []string{"user:" + kg, "role:workflow_admin", "agency:nobody_has_this_role", "role:postgres"} {
		fails(t, pool, "42501", "SELECT * FROM public.fn_event_inbox($1)", as)
		require.Equal(t, "not_recipient", call(t, pool, "public.fn_event_mark_read(ARRAY[$1::uuid], $2)", event("1"), as)["rule"], as)
	}
	got := call(t, pool, "public.fn_event_mark_read(ARRAY[$1, $2, $3, $1]::uuid[], $4)", event("1"), event("2"), event("3"), "user:"+ann)
	outcomes := map[string]string{}
	for _, r := range got["results"].([]any) {
		r := r.(map[string]any)
		outcomes[r["id"].(string)] = r["outcome"].(string)
	}
	require.Equal(t, map[string]string{event("1"): "read", event("2"): "refused", event("3"): "read"}, outcomes, "2 was not routed to it")
	require.Equal(t, "already", call(t, pool, "public.fn_event_mark_read(ARRAY[$1::uuid], $2)", event("1"), "user:"+ann)["results"].([]any)[0].(map[string]any)["outcome"])
	require.Equal(t, "", inbox(ann, "user:"+ann, true))
	require.Equal(t, "1 4,3 5", inbox(ann, "user:"+ann, false))
	require.Equal(t, "2 4,3 5", inbox(kg, "role:workflow_admin", true), "read by one is not read by the other")
	require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.event_read WHERE read_by = $1 AND recipient_ref = 'user:' || $1", ann))
	fails(t, pool, "42501", "INSERT INTO public.event_read (event_id, recipient_ref) VALUES (gen_random_uuid(), 'user:x')")
	fails(t, c.as("event_ingest_writer"), "42501", "SELECT * FROM public.fn_event_inbox('user:x')")
	fails(t, pool, "22023", "SELECT * FROM public.fn_event_inbox('ann')")
	fails(t, pool, "22023", "SELECT public.fn_event_mark_read('{}', $1)", "user:"+ann)
}

// Each off switch of DP6 §7 is set to off and on again, with its effect.
func TestSubscriptionSwitches(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin", "dot_executor")
	resolve := func() string { return c.recipients("kg", "made", "s", "", "{}") }
	require.Equal(t, "role:kg_indexer 4", resolve())

	id := get[int](c, "SELECT subscription_id FROM public.event_subscription WHERE recipient_ref = 'role:kg_indexer'")
	call(t, admin, "public.fn_event_subscription_mute($1, true, 'ann', 'off')", id)
	require.Equal(t, "broadcast 5", resolve(), "a row, muted")
	call(t, admin, "public.fn_event_subscription_mute($1, false, 'ann', 'on')", id)
	require.Equal(t, "role:kg_indexer 4", resolve())

	setFlag(t, admin, "queue.subscription_resolution.enabled", "false")
	require.Equal(t, "broadcast 5", resolve(), "all rows, by the flag")
	setFlag(t, admin, "queue.subscription_resolution.enabled", "true")
	require.Equal(t, "role:kg_indexer 4", resolve())

	call(t, admin, "public.fn_queue_heartbeat_register('codex', 'Codex', '{kg}', 60, 300, 'ann')")
	subscription := "public.fn_job_subscription_set('codex', NULL, NULL, 0, 10, $1, NULL, 'ann', 'switch')"
	call(t, admin, subscription, true)
	c.exec("SELECT public.fn_job_enqueue('kg.reindex', 'kg', 'Codex') FROM generate_series(1, 3)")
	claim := func() (n int) {
		t.Helper()
		require.NoError(t, admin.QueryRow(context.Background(), "SELECT count(*) FROM public.fn_job_claim('codex')").Scan(&n))
		return n
	}
	require.Equal(t, 1, claim())
	call(t, admin, subscription, false)
	require.Zero(t, claim(), "a subscription of an executor, disabled")
	call(t, admin, subscription, true)
	require.Equal(t, 1, claim())

	// Deregistering an executor is refused while work waits for it.
	require.Equal(t, "work_waits", call(t, admin, "public.fn_queue_heartbeat_deregister('codex', 'ann', 'off')")["rule"])
	c.exec("SELECT public.fn_job_cancel((SELECT array_agg(job_id) FROM public.job_queue), 'ann', 'test')")
	require.Nil(t, call(t, admin, "public.fn_queue_heartbeat_deregister('codex', 'ann', 'off')")["refused"])
	c.exec("SELECT public.fn_job_enqueue('kg.reindex', 'kg', 'Codex')")
	require.Zero(t, claim())
	call(t, admin, "public.fn_queue_heartbeat_register('codex', 'Codex', '{kg}', 60, 300, 'ann')")
	require.Equal(t, 1, claim(), "its subscriptions were kept")
}

// event_read rows are kept as long as the events that they are about could be kept.
func TestEventReadIsKeptAsLongAsEvents(t *testing.T) {
	c := newCore(t)
	c.exec("INSERT INTO public.event_read (event_id, recipient_ref, read_at) SELECT gen_random_uuid(), 'user:a' || d, now() - make_interval(days => d) FROM unnest('{1,89,91,129,400}'::int[]) d")
	read := func() string {
		call(t, c.root, "public.fn_queue_retention_sweep()")
		return get[string](c, "SELECT string_agg(recipient_ref, ' ' ORDER BY recipient_ref) FROM public.event_read")
	}
	c.exec("ALTER TABLE public.event_outbox DISABLE TRIGGER trg_event_outbox_admit")
	c.exec(`INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, created_at)
		VALUES ('system', 'queue_worker_silent', 'alert', 'immediate', now() - interval '130 days')`)
	require.Equal(t, "user:a1 user:a129 user:a89 user:a91", read(), "an event that stays, not being routed, keeps the rest of its month: read, it does not come back as unread")
	call(t, c.root, "public.fn_iu_route_worker_run()")
	c.exec("UPDATE public.iu_route_attempt SET attempted_at = now() - interval '130 days' - interval '1 minute'")
	require.Equal(t, "user:a1 user:a129 user:a89 user:a91", read(), "a run that began before the event dates its attempt earlier, and the leaf goes nevertheless")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.event_outbox"))
	require.Equal(t, "user:a1 user:a89", read())
}
