// Why a queue waits: each link of the chain blocks when it should, gives the same reason as the
// snapshot, and names a remedy. Also: expired webhook leases can be released.

package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// whyOf returns the reason why a queue waits, its links with their states, and the reason that the
// snapshot shows.
func (h *hooks) whyOf(name string) (why string, links map[string]string, column string) {
	h.t.Helper()
	got := h.call("public.fn_queue_why($1)", name)
	require.Nil(h.t, got["refused"], got)
	requireWhy(h.t, got)
	links = map[string]string{}
	for _, l := range got["links"].([]any) {
		l := l.(map[string]any)
		name := l["link"].(string)
		if links[name] != "blocks" {
			links[name] = l["state"].(string)
		}
		if l["state"] == "blocks" && name != "due" {
			require.NotEmpty(h.t, l["do"], "%s has no cure", name)
		}
	}
	shown := one[string](h, `SELECT COALESCE((SELECT w.value ->> 'why' FROM jsonb_array_elements(public.fn_queue_snapshot_parts()::jsonb -> 'waiting') w
		WHERE $1 IN (w.value ->> 'queue', concat(w.value ->> 'queue', ' in ', w.value ->> 'domain'))), '(nothing waits)')`, name)
	return got["why"].(string), links, shown
}

// requireWhy checks an answer of fn_queue_why. The word for the reason is the link that has its text,
// because lists have the text alone. No link tells people to write SQL: none has a name of the
// schema, such as rate_limit_per_second, or a statement.
func requireWhy(t *testing.T, got map[string]any) {
	t.Helper()
	text, err := json.Marshal(got)
	require.NoError(t, err)
	var y queue.Why
	require.NoError(t, json.Unmarshal(text, &y))
	y.Decide()
	require.Equal(t, y.Code, queue.WhyCode(y.Why.String()), y.Why)
	names := schemaNames(t)
	for _, l := range y.Links {
		for _, text := range []string{l.Text.String(), l.Do.String()} {
			require.NotRegexp(t, `\b(SELECT|INSERT|UPDATE|DELETE|ALTER|CALL)\b`, text, l.Link)
			for _, word := range regexp.MustCompile(`[\w.]+`).FindAllString(text, -1) {
				require.NotContains(t, names, word, "the link %s: %s", l.Link, text)
			}
		}
	}
}

// schemaNames returns the names of tables and columns that are not English words.
func schemaNames(t *testing.T) map[string]bool {
	t.Helper()
	list, err := os.ReadFile("tables.txt")
	require.NoError(t, err)
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:table|column)\t(\w+)\.?(\w*)`).FindAllStringSubmatch(string(list), -1) {
		for _, name := range m[1:] {
			if strings.Contains(name, "_") {
				names[name] = true
			}
		}
	}
	require.Subset(t, names, map[string]bool{"webhook_delivery_jobs": true, "rate_limit_per_second": true})
	return names
}

// cure returns the command that fixes a link of the chain of a queue.
func (h *hooks) cure(name, link string) string {
	h.t.Helper()
	return one[string](h, `SELECT l.value ->> 'do' FROM jsonb_array_elements(public.fn_queue_why($1) -> 'links') l
		WHERE l.value ->> 'link' = $2 ORDER BY l.value ->> 'state' = 'clear' LIMIT 1`, name, link)
}

// unguarded changes a table with its triggers disabled.
func (h *hooks) unguarded(table, sql string, args ...any) {
	h.t.Helper()
	h.exec("ALTER TABLE public." + table + " DISABLE TRIGGER USER")
	h.exec(sql, args...)
	h.exec("ALTER TABLE public." + table + " ENABLE TRIGGER USER")
}

// alive replaces all hosts by one that runs these loops; without loops there is no host.
func (h *hooks) alive(loops ...string) {
	h.t.Helper()
	h.exec("DELETE FROM public.queue_host")
	if len(loops) > 0 {
		h.exec("INSERT INTO public.queue_host (host_id, instance, version, loops) VALUES ('h1', gen_random_uuid(), 'v', $1)", loops)
	}
}

func TestWhyAnEndpointWaits(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	name := "webhook " + one[string](h, "SELECT endpoint FROM public.subscriptions")
	why, _, _ := h.whyOf(name)
	require.Empty(t, why, "nothing waits")
	h.emit("order", 3)
	h.route()
	gate := func(reason, until string) func() {
		return func() {
			h.exec("INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) VALUES ($1, $2, now() + $3::interval, 'ann')", sub, reason, until)
		}
	}
	open := func() { h.exec("DELETE FROM public.webhook_endpoint_suspensions") }
	flag := func(key, value string) func() { return func() { h.flag(key, value) } }
	update := func(sql string) func() { return func() { h.exec(sql) } }
	both := []string{"webhook_worker", "saga_orchestrator"}
	cures := map[string]string{
		"subscription inactive":                              fmt.Sprintf("qtop webhook enable %d --reason R", sub),
		"subscription unverified":                            fmt.Sprintf("qtop webhook verify %d --reason R", sub),
		"endpoint suspended: operator":                       fmt.Sprintf("qtop endpoint resume %d --reason R", sub),
		"circuit open":                                       fmt.Sprintf("qtop endpoint resume %d --reason R", sub),
		"rate limit 0.5/s":                                   fmt.Sprintf("qtop webhook limit %d --per-second N --reason R", sub),
		"queue.tick.saga_orchestrator.interval_seconds is 0": "qtop flag set queue.tick.saga_orchestrator.interval_seconds 5 --reason R",
		"queue.tick.webhook_worker.interval_seconds is 0":    "qtop flag set queue.tick.webhook_worker.interval_seconds 1 --reason R",
	}
	h.alive(both...)
	for _, c := range []struct {
		set, back func()
		link, why string
	}{
		{nil, nil, "", ""},
		{flag("webhook.worker.enabled", "false"), flag("webhook.worker.enabled", "true"), "flag", "webhook.worker.enabled is off"},
		{flag("queue.tick.saga_orchestrator.interval_seconds", "0"), flag("queue.tick.saga_orchestrator.interval_seconds", "5"), "schedule", "queue.tick.saga_orchestrator.interval_seconds is 0"},
		{flag("queue.tick.webhook_worker.interval_seconds", "0"), flag("queue.tick.webhook_worker.interval_seconds", "1"), "schedule", "queue.tick.webhook_worker.interval_seconds is 0"},
		{update("UPDATE public.subscriptions SET active = false"), update("UPDATE public.subscriptions SET active = true"), "subscription", "subscription inactive"},
		{update("UPDATE public.subscriptions SET verified = false"), update("UPDATE public.subscriptions SET verified = true"), "subscription", "subscription unverified"},
		{gate("operator", "1 hour"), open, "suspension", "endpoint suspended: operator"},
		{gate("410", "1 hour"), open, "suspension", "endpoint suspended: 410"},
		{gate("operator", "-1 second"), open, "", ""},
		{gate("circuit", "1 hour"), open, "circuit", "circuit open"},
		{gate("circuit", "-1 second"), open, "circuit", "circuit half open: one probe at a time"},
		{func() { h.alive("saga_orchestrator") }, func() { h.alive(both...) }, "host", "no live host runs webhook_worker"},
		{func() { h.alive("webhook_worker") }, func() { h.alive(both...) }, "host", "no live host runs saga_orchestrator"},
		{
			func() {
				h.exec(`UPDATE public.queue_host SET progress = jsonb_build_object('webhook_worker', jsonb_build_object('unsigned', jsonb_build_array(
					jsonb_build_object('subscription', $1::text, 'what', 'secret acme is missing', 'do', 'add it'))))`, fmt.Sprint(sub))
			},
			update("UPDATE public.queue_host SET progress = '{}'"), "signing", "no live host can sign: secret acme is missing",
		},
		{update("UPDATE public.subscriptions SET rate_limit_per_second = 0.5"), update("UPDATE public.subscriptions SET rate_limit_per_second = NULL"), "rate", "rate limit 0.5/s"},
		{
			func() {
				h.unguarded("webhook_delivery_sagas", "UPDATE public.webhook_delivery_sagas SET next_attempt_at = now() + interval '1 hour'")
			},
			func() {
				h.unguarded("webhook_delivery_sagas", "UPDATE public.webhook_delivery_sagas SET next_attempt_at = now()")
			},
			"due", "all due later: backing off",
		},
	} {
		if c.set != nil {
			c.set()
		}
		why, links, column := h.whyOf(name)
		require.Equal(t, c.why, why, c.link)
		require.Equal(t, why, column, "the column of the snapshot says the same")
		if do, ok := cures[why]; ok {
			require.Equal(t, do, h.cure(name, c.link), why)
			delete(cures, why)
		}
		if c.link != "" {
			require.Equal(t, map[bool]string{true: "slows", false: "blocks"}[c.link == "rate"], links[c.link], c.why)
		}
		if c.back != nil {
			c.back()
		}
	}
	require.Empty(t, cures, "every cure was seen")

	// one of the two subscriptions of an endpoint is suspended: this slows the queue, but does not
	// block it
	other := h.subscribe("order2")
	h.exec("UPDATE public.subscriptions SET callback_url = (SELECT callback_url FROM public.subscriptions WHERE id = $1) WHERE id = $2", sub, other)
	h.emit("order2", 1)
	h.route()
	gate("operator", "1 hour")()
	why, links, column := h.whyOf(name)
	require.Equal(t, []string{"1 of 2 subscriptions are suspended", "slows", ""}, []string{why, links["suspension"], column})
	h.exec("UPDATE public.subscriptions SET active = false WHERE id = $1", other)
	require.Equal(t, fmt.Sprintf("qtop webhook enable %d --reason R", other), h.cure(name, "subscription"))
	require.Equal(t, fmt.Sprintf("qtop endpoint resume %d --reason R", sub), h.cure(name, "suspension"))
	why, _, column = h.whyOf(name)
	require.Equal(t, []string{"no subscription of the endpoint may send now", "no subscription of the endpoint may send now"}, []string{why, column})
	require.Equal(t, fmt.Sprintf("%d: suspended, %d: inactive", sub, other), one[string](h, `SELECT l.value ->> 'detail' FROM jsonb_array_elements(public.fn_queue_why($1) -> 'links') l
		WHERE l.value ->> 'link' = 'gates'`, name))
	open()
	h.exec("UPDATE public.subscriptions SET verified = false WHERE id = $1", sub)
	why, _, _ = h.whyOf(name)
	require.Equal(t, []string{"subscription unverified", fmt.Sprintf("qtop webhook verify %d --reason R", sub)}, []string{why, h.cure(name, "subscription")}, "the cure is for the reason")
	for _, alias := range []string{fmt.Sprint(sub), fmt.Sprintf("subscription %d", sub), name[len("webhook "):]} {
		require.Equal(t, name, h.call("public.fn_queue_why($1)", alias)["queue"], alias)
	}
}

func TestWhyEventsWait(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.alive("webhook_router")
	h.emit("order", 2)
	why, _, column := h.whyOf("webhook events")
	require.Equal(t, []string{"", ""}, []string{why, column})
	require.Equal(t, "[null, null, null]", waitingOf(t, h.root, "webhook events", "jsonb_build_array(w -> 'in_per_s', w -> 'out_per_s', w -> 'clears_in_seconds')"),
		"neither is counted")
	h.flag("queue.tick.webhook_router.interval_seconds", "0")
	why, _, column = h.whyOf("webhook events")
	require.Equal(t, []string{"queue.tick.webhook_router.interval_seconds is 0", why}, []string{why, column})
	h.flag("queue.tick.webhook_router.interval_seconds", "5")
	h.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 hour', counted_from = NULL WHERE executor_id = 'webhook_router'")
	why, _, column = h.whyOf("webhook events")
	require.Equal(t, []string{"webhook_router is silent", why}, []string{why, column})
	h.alive()
	why, _, column = h.whyOf("webhook events")
	require.Equal(t, []string{"no live host runs webhook_router", why}, []string{why, column})
	h.exec(`DO $$ BEGIN EXECUTE replace(pg_get_functiondef('public.fn_routing_held()'::regprocedure), '1 minute', '0'); END $$`)
	open, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = open.Rollback(context.Background()) }()
	_, err = open.Exec(t.Context(), "INSERT INTO public.events (event_type, payload) VALUES ('order', '{}')")
	require.NoError(t, err)
	_, links, _ := h.whyOf("webhook events")
	require.Equal(t, "slows", links["held"])
	require.Equal(t, fmt.Sprintf("let its client end it, or: qtop session terminate %d --reason R", open.Conn().PgConn().PID()), h.cure("webhook events", "held"))

	got := h.call("public.fn_queue_why('no such queue')")
	require.Equal(t, "not_found", got["rule"], got)
	_, err = tryCall(h.work, "public.fn_queue_why('  ')")
	refused(t, "22023", err, "no name")
}

// Deliveries that are being sent are not shown as deliveries that wait.
func TestWhyDeliveriesInFlight(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.alive("webhook_worker", "saga_orchestrator")
	h.emit("order", 1)
	h.step()
	require.Len(t, h.claim(1), 1)
	name := "webhook " + one[string](h, "SELECT endpoint FROM public.subscriptions")
	why, links, column := h.whyOf(name)
	require.Equal(t, []string{"", "", "clear"}, []string{why, column, links["due"]})
	h.emit("order", 1)
	h.route()
	h.unguarded("webhook_delivery_sagas", "UPDATE public.webhook_delivery_sagas SET next_attempt_at = now() + interval '1 hour' WHERE status = 'Pending'")
	why, _, column = h.whyOf(name)
	require.Equal(t, []string{"all due later: backing off", "all due later: backing off"}, []string{why, column})
}

// waitingOf evaluates an expression over w, the object of a queue in the section waiting of the snapshot.
func waitingOf(t *testing.T, root *pgxpool.Pool, name, expression string) (said string) {
	t.Helper()
	require.NoError(t, root.QueryRow(t.Context(), "SELECT ("+expression+`)::text FROM jsonb_array_elements(public.fn_queue_snapshot_parts()::jsonb -> 'waiting') w
		WHERE w ->> 'queue' = $1`, name).Scan(&said))
	return said
}

// countNow counts 600 in the counter of the current minute, and nothing before.
const countNow = `WITH before AS (DELETE FROM public.queue_counter_recent WHERE scope = $1)
	INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n) SELECT $1, $2, '', (floor(extract(epoch FROM now()) / 60) * 60)::bigint::text, 600`

// counted is how many were counted, by a rate of w: it is that of four minutes, and of what has passed of the current
// one.
func counted(rate string) string {
	return "round((w ->> '" + rate + "')::numeric * (240 + extract(second FROM now())))"
}

func TestRatesOfWebhooksAreOfTheTimeCounted(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.emit("order", 1)
	h.route()
	for scope, rate := range map[string]string{"arrived_1m": "in_per_s", "drained_1m": "out_per_s"} {
		h.exec(countNow, scope, fmt.Sprint(sub))
		require.Equal(t, "600", waitingOf(t, h.root, "webhook "+one[string](h, "SELECT endpoint FROM public.subscriptions"), counted(rate)), scope)
	}
}

// An endpoint to which nothing is sent any more has no time at which its backlog is gone, whatever
// was sent in the minutes before; one that sends slowly has.
func TestWaitingClears(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.alive("webhook_worker", "saga_orchestrator")
	h.emit("order", 9)
	h.route()
	h.exec("DELETE FROM public.queue_counter_recent WHERE scope = 'arrived_1m'")
	h.exec(`INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
		SELECT 'drained_1m', $1, '', (floor(extract(epoch FROM now()) / 60) * 60)::bigint::text, 60000`, fmt.Sprint(sub))
	for _, c := range []struct{ do, why, clears string }{
		{"SELECT 1", "", "1"},
		{"UPDATE public.subscriptions SET rate_limit_per_second = 2", "rate limit 2/s", "1"},
		{"UPDATE public.dot_config SET value = 'false' WHERE key = 'webhook.worker.enabled'", "webhook.worker.enabled is off", ""},
	} {
		h.exec(c.do)
		require.Equal(t, c.why+" "+c.clears, one[string](h, `SELECT concat(w ->> 'why', ' ', w ->> 'clears_in_seconds')
			FROM jsonb_array_elements(public.fn_queue_snapshot_parts()::jsonb -> 'waiting') w WHERE w ->> 'source' = 'webhook'`))
	}
}

func TestRatesOfEventsAreOfTheTimeCounted(t *testing.T) {
	c := newRoutes(t)
	c.emit("iu", "1")
	c.exec(countNow, "event_1m", "iu")
	require.Equal(t, "600", waitingOf(t, c.root, "events iu", counted("in_per_s")))
}

// Where pg_cron ticks the router, events that wait for its next tick wait for no host.
func TestWhyEventsWaitForPgCron(t *testing.T) {
	c := newRoutes(t)
	c.emit("iu", "1")
	const nobody = "no live host runs iu_outbound_default"
	for _, s := range []struct{ mode, source, ago, why string }{
		{"external", "external", "1 minute", nobody},
		{"external", "pg_cron", "1 minute", nobody},
		{"pg_cron", "pg_cron", "1 minute", ""},
		{"hybrid", "pg_cron", "1 minute", ""},
		{"hybrid", "pg_cron", "2 hours", nobody},
		{"hybrid", "pg_cron", "-1 day", nobody}, // before the clock was set back
		{"hybrid", "external", "1 minute", nobody},
	} {
		c.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'queue.scheduler.mode'", s.mode)
		c.exec(`UPDATE public.queue_tick_worker SET last_result = jsonb_build_object('source', $1::text), last_run_at = now() - $2::interval
			WHERE worker_name = 'iu_outbound_default'`, s.source, s.ago)
		require.Equal(t, s.why, get[string](c, "SELECT public.fn_queue_why('events iu') ->> 'why'"), s)
		require.Equal(t, s.why, waitingOf(t, c.root, "events iu", "w ->> 'why'"), s)
		require.Equal(t, "t null null", waitingOf(t, c.root, "events iu", "concat_ws(' ', (w ->> 'in_per_s')::numeric > 0, w -> 'out_per_s', w -> 'clears_in_seconds')"),
			"how many are routed is not counted")
	}
}

// Executors that are silent or have stopped change neither what those that live cannot do, nor the
// remedy.
func TestWhyOnlyAbsentExecutorsCould(t *testing.T) {
	j := newJobs(t)
	c := j.core
	j.put("k", "iu", 1)
	for _, e := range []string{"a-old", "live", "z-old"} {
		j.jobSubscription(e, "k", "", 0, 1)
	}
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day' WHERE executor_id = 'z-old'")
	c.exec(`UPDATE public.queue_heartbeat SET last_beat_payload = '{"state": "stopped"}' WHERE executor_id = 'a-old'`)
	host := func(kind string) func() {
		return func() {
			c.live("h", "{job_executor}", `{"job_executor": {"executor": "live", "kinds": ["`+kind+`"]}}`)
		}
	}
	for _, s := range []struct {
		do        func()
		why, cure string
	}{
		{func() {}, "", "start the program of executor a-old; if it is a host of qtop, with its handlers: qtop worker --executor a-old --loops job_executor"},
		{func() {
			c.exec("UPDATE public.queue_heartbeat SET last_beat_payload = '{}', last_beat_at = now() WHERE executor_id = 'a-old'")
			c.exec("UPDATE public.job_subscription SET enabled = false WHERE executor_id = 'a-old'")
		}, "", "start the program of executor z-old; if it is a host of qtop, with its handlers: qtop worker --executor z-old --loops job_executor"},
		{host("other"), "no live host has a handler for it", "bind k under handlers in the configuration of a worker host"},
		{func() {
			host("k")()
			j.exec("UPDATE public.job_subscription SET priority_floor = 500 WHERE executor_id = 'live'")
		}, "priority floor 500 of live", "qtop executor subscribe live --kind k --floor N --reason R"},
		{func() {
			j.exec("UPDATE public.job_subscription SET priority_floor = 0 WHERE executor_id = 'live'")
			j.put("k", "iu", 1)
			j.one("live")
		}, "parallel limit reached: live", "qtop executor subscribe live --kind k --parallel N --reason R"},
	} {
		s.do()
		got := call(t, j.root, "public.fn_queue_why('job k in iu')")
		requireWhy(t, got)
		var cures []string
		for _, l := range got["links"].([]any) {
			if l := l.(map[string]any); l["do"] != "" && (l["state"] == "blocks" || s.why == "") {
				cures = append(cures, l["do"].(string))
			}
		}
		require.Equal(t, []string{s.cure}, cures)
		if s.why != "" {
			require.Contains(t, got["why"], s.why)
		}
		require.Equal(t, s.why, get[string](c, `SELECT w ->> 'why' FROM jsonb_array_elements(public.fn_queue_snapshot_parts()::jsonb -> 'waiting') w WHERE w ->> 'queue' = 'job k'`))
	}
}

func TestWhyALaneWaits(t *testing.T) {
	j := newJobs(t)
	told := func(name string) (why, column string) {
		t.Helper()
		got := call(t, j.root, "public.fn_queue_why($1)", name)
		require.Nil(t, got["refused"], got)
		requireWhy(t, got)
		return got["why"].(string), get[string](j.core, `SELECT COALESCE((SELECT w.value ->> 'why' FROM jsonb_array_elements(public.fn_queue_snapshot_parts()::jsonb -> 'waiting') w
			WHERE w.value ->> 'queue' = 'job k'), '(nothing waits)')`)
	}
	host := func(executor string, kinds ...string) {
		t.Helper()
		j.exec("DELETE FROM public.queue_host")
		progress, err := json.Marshal(map[string]any{"job_executor": map[string]any{"executor": executor, "kinds": kinds}})
		require.NoError(t, err)
		j.exec("INSERT INTO public.queue_host (host_id, instance, version, loops, progress) VALUES ('h1', gen_random_uuid(), 'v', '{job_executor}', $1)", string(progress))
	}
	j.put("k", "iu", 2)
	for _, c := range []struct {
		set func()
		why string
	}{
		{func() {}, "no external_worker executor subscribes to it"},
		{func() { j.jobSubscription("w", "k", "", 0, 1) }, ""},
		{func() { host("w", "other") }, "no live host has a handler for it"},
		{func() { host("w", "k", "other") }, ""},
		{func() { host("somebody", "other") }, ""},
		{func() {
			j.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day' WHERE executor_id = 'w'")
		}, "every subscribed executor is silent: w"},
		{func() {
			j.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() WHERE executor_id = 'w'")
			j.one("w")
		}, "parallel limit reached: w"},
		{func() { j.flag("queue.job_substrate.enabled", "false") }, "queue.job_substrate.enabled is off"},
	} {
		c.set()
		why, column := told("job k in iu")
		require.Equal(t, c.why, why)
		require.Equal(t, why, column, "the column of the snapshot says the same")
	}
	require.NotContains(t, get[string](j.core, "SELECT public.fn_queue_why('job k in iu')::text"), "back at", "the flag has no expiry")
	j.flag("queue.job_substrate.enabled", "true")
	j.put("k", "kg", 1)
	ambiguous := call(t, j.root, "public.fn_queue_why('k')")
	require.Equal(t, "ambiguous", ambiguous["rule"])
	require.Equal(t, "several queues are called k: job k in iu, job k in kg; name one of them", ambiguous["reason"])
}

// Whether a priority floor blocks a lane depends on the priorities of the waiting jobs.
func TestWhyBelowTheFloor(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "k", "", 10, 1)
	floor := func() (state, text string) {
		t.Helper()
		got := call(t, j.root, "public.fn_queue_why('k')")
		requireWhy(t, got)
		for _, l := range got["links"].([]any) {
			if l := l.(map[string]any); l["link"] == "floor" {
				if l["state"] != "clear" {
					require.Equal(t, "qtop executor subscribe w --kind k --floor N --reason R", l["do"], "the job subscription that applies")
				}
				return l["state"].(string), l["text"].(string)
			}
		}
		t.Fatal("no such link")
		return "", ""
	}
	for _, c := range []struct{ priority, state, text string }{
		{"5", "blocks", "priority floor 10 of w: waiting jobs have 5"},
		{"9", "blocks", "priority floor 10 of w: waiting jobs have 5 to 9"},
		{"10", "slows", "priority floor 10 of w: waiting jobs have 5 to 10"},
	} {
		j.exec("SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_priority => " + c.priority + ")")
		state, text := floor()
		require.Equal(t, []string{c.state, c.text}, []string{state, text})
	}
	j.exec("UPDATE public.job_subscription SET priority_floor = 5")
	state, _ := floor()
	require.Equal(t, "clear", state)
}

// Jobs that are due, but not yet ready because nobody runs job_queue_default, are shown with this
// reason.
func TestWhyDueJobsAreNotTakenIn(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100)
	call(t, j.root, "public.fn_job_enqueue('k', 'iu', 'external_worker', p_process_after => now() + interval '1 hour')")
	require.Equal(t, "all due later", call(t, j.root, "public.fn_queue_why('k')")["why"])
	j.exec("ALTER TABLE public.job_queue DISABLE TRIGGER USER")
	j.exec("UPDATE public.job_queue SET process_after = now() - interval '10 minutes'")
	j.exec("ALTER TABLE public.job_queue ENABLE TRIGGER USER")
	shown := func() string {
		got := call(t, j.root, "public.fn_queue_why('k')")
		requireWhy(t, got)
		require.Equal(t, got["why"], j.snapshot().Queues[0].Why.String())
		return got["why"].(string) + "; " + get[string](j.core, "SELECT l ->> 'do' FROM jsonb_array_elements(public.fn_queue_why('k') -> 'links') l WHERE l ->> 'state' = 'blocks'")
	}
	require.Equal(t, "job_queue_default does not run: jobs that become due cannot be claimed; qtop worker --loops job_queue_default", shown())
	// A host does not help while the interval is 0.
	j.exec("SELECT public.fn_dot_config_set('queue.tick.job_queue_default.interval_seconds', '0', 'ann', 'r')")
	require.Equal(t, "queue.tick.job_queue_default.interval_seconds is 0; qtop flag set queue.tick.job_queue_default.interval_seconds 30 --reason R", shown())
}

func TestWebhookLeaseRelease(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 3)
	h.step()
	held := h.claim(2)
	waiting := one[int64](h, "SELECT id FROM public.webhook_delivery_jobs WHERE status = 'Pending'")
	ids := []int64{held[0].Job, held[1].Job, waiting, 999}
	h.unguarded("webhook_delivery_jobs", "UPDATE public.webhook_delivery_jobs SET lease_until = now() - interval '1 second' WHERE id = $1", held[0].Job)
	release := "public.fn_webhook_lease_release($1, 'ann', 'its host is gone', $2)"
	whys := func(answer map[string]any) (out []string) {
		for _, r := range results(t, answer) {
			out = append(out, fmt.Sprint(r["outcome"], " ", r["why"]))
		}
		return out
	}
	dry := h.call(release, ids, true)
	require.Equal(t, "would_release <nil>", whys(dry)[0])
	require.Equal(t, 2, one[int](h, "SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Leased'"), "a dry run changes nothing")
	got := whys(h.call(release, ids, false))
	require.Equal(t, "released <nil>", got[0])
	require.Contains(t, got[1], "skipped the lease runs until 20")
	require.Equal(t, "skipped the job is Pending, not leased: there is nothing to release", got[2])
	require.Equal(t, "skipped no such webhook job", got[3])
	require.Equal(t, "Pending 1", one[string](h, "SELECT concat_ws(' ', status, lease_resets) FROM public.webhook_delivery_jobs WHERE id = $1", held[0].Job))
	require.Equal(t, []string{"lease_lost"}, h.report(result(held[0], "")), "the worker that had it changes nothing")
	last := "SELECT concat_ws(' ', outcome, frozen_count, target, after) FROM public.queue_operator_action WHERE action = 'webhook_lease_release' ORDER BY id DESC LIMIT 1"
	require.Equal(t, fmt.Sprintf(`done 4 webhook_lease %d,%d,%d,999 {"jobs": [%d], "skipped": 3, "released": 1}`, held[0].Job, held[1].Job, waiting, held[0].Job), one[string](h, last))
	h.call(release, ids[1:2], false)
	require.Equal(t, fmt.Sprintf(`refused 1 webhook_lease %d {"jobs": [], "skipped": 1, "released": 0}`, held[1].Job), one[string](h, last))

	for range 2 { // the third lost lease fails the job
		h.unguarded("webhook_delivery_jobs", "UPDATE public.webhook_delivery_jobs SET status = 'Leased', lease_until = now() - interval '1 second', lease_token = gen_random_uuid(), worker_id = 'w', started_at = now() WHERE id = $1", held[0].Job)
		h.call(release, ids[:1], false)
	}
	require.Equal(t, "Failed LEASE_LOST_LIMIT", one[string](h, "SELECT concat_ws(' ', status, error_code) FROM public.webhook_delivery_jobs WHERE id = $1", held[0].Job))
	_, err := tryCall(h.work, "public.fn_webhook_lease_release('{}', 'ann', 'x')")
	refused(t, "22023", err, "no ids")
}

func TestWebhookResumeLiftsWhatWasSeen(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.call("public.fn_endpoint_suspend($1, 'ann', 'receiver down')", sub)
	got := h.call("public.fn_endpoint_resume($1, 'ben', 'it is back', now() - interval '1 hour')", sub)
	require.Equal(t, "changed", got["rule"], got)
	require.Contains(t, got["reason"], "by ann")
	since := one[string](h, "SELECT since::text FROM public.webhook_endpoint_suspensions")
	require.Nil(t, h.call("public.fn_endpoint_resume($1, 'ben', 'it is back', $2::text::timestamptz)", sub, since)["refused"])
}

// A resumed endpoint stays resumed, even if the 410 answer that suspended it is settled later.
func TestWebhookResumeOutlivesAnOldGone(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.emit("order", 1)
	h.step()
	require.Equal(t, []string{"done"}, h.report(result(h.claim(1)[0], "HTTP_410")))
	require.Equal(t, "410", one[string](h, "SELECT reason FROM public.webhook_endpoint_suspensions"))
	require.Nil(t, h.call("public.fn_endpoint_resume($1, 'ann', 'the path is mended')", sub)["refused"])
	require.Equal(t, 1, num(h.step(), "dead_lettered"))
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_endpoint_suspensions"))
}

// The reason names jobs of an older release whose process_after is never reached.
func TestWhyALaneIsNeverDue(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1)
	why := func(lane string) any { return call(t, j.root, "public.fn_queue_why($1)", lane)["why"] }
	j.put("k", "iu", 1)
	require.Empty(t, why("job k in iu"))
	for _, at := range []string{"infinity", "20000-01-01"} {
		j.exec(`INSERT INTO public.job_queue (job_kind, event_domain, executor, process_after, ready) SELECT kind, 'iu', 'external_worker', $1::text::timestamptz, false
			FROM unnest('{k,never}'::text[]) kind`, at)
	}
	require.Equal(t, "2 of 3 waiting jobs are never due: their process_after is infinity or beyond the year 9999", why("job k in iu"))
	require.Equal(t, "2 of 2 waiting jobs are never due: their process_after is infinity or beyond the year 9999", why("job never in iu"))
}
