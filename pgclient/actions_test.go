// Actions: an action does what its plan says, or nothing at all.

package pgclient_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

func plan(t *testing.T, c *console, r queue.Request) queue.Plan {
	t.Helper()
	p, err := c.Plan(context.Background(), r)
	require.NoError(t, err)
	noInternalNames(t, p)
	return p
}

var (
	snakeCase = regexp.MustCompile(`[a-z][a-z0-9]*(_[a-z0-9]+)+`)
	internals = sync.OnceValues(func() (map[string]bool, error) {
		raw, err := os.ReadFile("schema/objects.txt")
		names := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^(?:table|view|function) public\.(\w+)`).FindAllStringSubmatch(string(raw), -1) {
			names[m[1]] = true
		}
		return names, err
	})
)

// noInternalNames fails if a preview contains the name of a table, view or function, which mean
// nothing to an operator. Names of flags, loops and log fields are allowed: operators type and read
// these.
func noInternalNames(t *testing.T, p queue.Plan) {
	t.Helper()
	names, err := internals()
	require.NoError(t, err)
	require.Greater(t, len(names), 300)
	for _, l := range append(p.Lines, queue.PlanLine{Label: "refused", Value: queue.Clean(p.Refused)}) {
		for _, word := range snakeCase.FindAllString(l.Label+" "+l.Value.String(), -1) {
			require.False(t, names[word], "%s: %s %s", p.Request.Action, l.Label, l.Value)
		}
	}
}

func apply(t *testing.T, c *console, p queue.Plan) queue.Result {
	t.Helper()
	r, err := c.Apply(context.Background(), p)
	require.NoError(t, err)
	return r
}

func TestPlanIsWhatHappens(t *testing.T) {
	w := newWorld(t)
	l := deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute}
	made := w.die(l, l, l, deadLetter{"other", "https://other.test/", "TIMEOUT", time.Hour})
	op := w.client("queue_viewer", "dead_letter_operator")
	before := get[string](w, "SELECT count(*) || ' ' || (SELECT count(*) FROM public.queue_operator_action) FROM public.webhook_delivery_sagas")

	p := plan(t, op, queue.Request{Action: queue.ActRequeue, Filter: "code:HTTP_503", Reason: "back"})
	require.EqualValues(t, 3, p.Count)
	require.Equal(t, made[:3], p.Request.Targets, "the filter is frozen to ids")
	require.Equal(t, before, get[string](w, "SELECT count(*) || ' ' || (SELECT count(*) FROM public.queue_operator_action) FROM public.webhook_delivery_sagas"),
		"a plan changes nothing")
	late := w.die(l) // matches the filter, but nobody has seen it
	// One of the dead letters is closed after the plan was made.
	closed := apply(t, op, plan(t, op, queue.Request{Action: queue.ActResolve, Targets: made[:1], Reason: "r"}))
	require.EqualValues(t, 1, closed.Done)
	res := apply(t, op, p)
	require.EqualValues(t, 2, res.Done)
	require.EqualValues(t, 1, res.Skipped)
	require.NotZero(t, res.AuditID)
	for _, o := range res.Results {
		if o.ID == made[0] {
			require.Equal(t, "skipped", o.Outcome)
			require.Contains(t, o.Why.String(), "ann")
		} else {
			require.NotEmpty(t, o.NewID)
		}
	}
	require.Equal(t, 1, get[int](w, "SELECT count(*) FROM public.dead_letter_open WHERE dead_letter_id = $1::text::bigint", late[0]))

	again := plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: made[:3], Reason: "back"})
	require.Zero(t, again.Count)
	require.EqualValues(t, 3, again.Skipped)
	require.NotEmpty(t, again.Refused)
	require.NotEmpty(t, apply(t, op, again).Refused, "a refused plan is not applied")

	undo := plan(t, op, queue.Request{Action: queue.ActUndoRequeue, Targets: made[1:2], Reason: "too early"})
	require.EqualValues(t, 1, undo.Count)
	require.EqualValues(t, 1, apply(t, op, undo).Done)
	require.Equal(t, "no row matches the selection", plan(t, op, queue.Request{Action: queue.ActRequeue, Filter: "code:NOPE", Reason: "r"}).Refused)
	for _, empty := range []string{"", "   "} {
		_, err := op.Plan(context.Background(), queue.Request{Action: queue.ActRequeue, Filter: empty, Reason: "r"})
		kind(t, queue.KindUsage, err)
		require.Contains(t, err.Error(), "empty filter")
	}
}

// Two consoles apply the same plan: one saga is made per dead letter, and the second console learns
// who requeued it.
func TestRequeueTwice(t *testing.T) {
	w := newWorld(t)
	made := w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute})
	ops := []*console{w.client("queue_viewer", "dead_letter_operator"), w.client("queue_viewer", "dead_letter_operator")}
	results := make([]queue.Result, 2)
	errs := make([]error, 2)
	var plans []queue.Plan
	var wg sync.WaitGroup
	for i, c := range ops {
		c.WithActor(fmt.Sprint("op", i))
		plans = append(plans, plan(t, c, queue.Request{Action: queue.ActRequeue, Targets: made, Reason: "back"}))
	}
	for i, c := range ops {
		wg.Go(func() { results[i], errs[i] = c.Apply(context.Background(), plans[i]) })
	}
	wg.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	loser := 0
	if results[0].Done == 1 {
		loser = 1
	}
	require.EqualValues(t, 1, results[0].Done+results[1].Done)
	require.Contains(t, results[loser].Results[0].Why.String(), fmt.Sprint("op", 1-loser))
	require.Equal(t, 1, get[int](w, "SELECT count(*) FROM public.webhook_delivery_sagas WHERE requeued_from_dead_letter_id IS NOT NULL"))
}

func TestFlagPlan(t *testing.T) {
	w := newWorld(t)
	admin := w.client("workflow_admin")
	request := func(value, length string) queue.Request {
		return queue.Request{Action: queue.ActFlagSet, Targets: []string{"webhook.worker.enabled"}, Args: map[string]string{"value": value, "for": length}, Reason: "r"}
	}
	text := func(p queue.Plan) (s string) {
		for _, l := range p.Lines {
			s += l.Label + " " + l.Value.String() + "\n"
		}
		return s
	}
	stale := plan(t, admin, request("false", ""))
	p := plan(t, admin, request("false", "30m"))
	require.Contains(t, text(p), "back to true automatically after 30m 00s")
	require.Equal(t, "qtop flag set webhook.worker.enabled false --for 30m --reason r", p.Command)
	require.Empty(t, apply(t, admin, p).Refused)
	res := apply(t, admin, stale)
	require.Contains(t, res.Refused, `changed to "false" by ann`)
	require.Zero(t, res.Done)
	require.Equal(t, 1, get[int](w, "SELECT count(*) FROM public.dot_config_revert"), "the pending return stands")
	p = plan(t, admin, request("false", "2h"))
	require.Contains(t, text(p), "back to true automatically after 2h 00m", "longer is not for ever")
	require.Contains(t, text(p), "cancels the pending revert")
	require.Empty(t, apply(t, admin, p).Refused)
	require.Equal(t, "true", get[string](w, "SELECT revert_to FROM public.dot_config_revert"))
	// The undo of a change of a temporary value makes it no permanent one.
	p = plan(t, admin, request("true", ""))
	m := regexp.MustCompile(`^qtop flag set webhook.worker.enabled false --for (1h5\dm\d+s) --reason 'undo: r'$`).FindStringSubmatch(p.Undo)
	require.Len(t, m, 2, p.Undo)
	_, err := queue.Seconds("--for", m[1])
	require.NoError(t, err)
	require.NotContains(t, text(p), "undo", "it reverts to true as well")
	attempts := queue.Request{Action: queue.ActFlagSet, Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "7", "for": "30m"}, Reason: "r"}
	require.Empty(t, apply(t, admin, plan(t, admin, attempts)).Refused)
	attempts.Args = map[string]string{"value": "6"}
	require.Contains(t, text(plan(t, admin, attempts)), "undo sets 7 for the time left, which then reverts to 6, not to 10")
	attempts.Args["for"] = "10m"
	require.NotContains(t, text(plan(t, admin, attempts)), "undo sets", "it keeps to what the flag reverts")
	require.Equal(t, "unknown_key", plan(t, admin, queue.Request{Action: queue.ActFlagSet, Targets: []string{"no.such"}, Args: map[string]string{"value": "1"}, Reason: "r"}).Rule)
	// The reason of an undo is short enough also after the longest reason.
	attempts.Reason = strings.Repeat("é", queue.MostReason)
	require.Contains(t, plan(t, admin, attempts).Undo, "'undo: "+strings.Repeat("é", 100)+"'")
	// The preview refuses the same values as the function that sets the flag.
	for _, c := range []struct{ key, value, length, rule string }{
		{"webhook.worker.enabled", "yes", "", "invalid_value"}, {"iu_core.route_worker_enabled", "true", "", "unchanged"},
		{"webhook.lease_seconds", "15", "", "conflict"}, {"queue.tick.config_expiry.interval_seconds", "0", "10m", "conflict"},
		{"queue.tick.config_expiry.interval_seconds", "0", "", ""}, {"webhook.timeout_seconds", "20", "400d", "expiry_too_far"},
	} {
		p := plan(t, admin, queue.Request{Action: queue.ActFlagSet, Targets: []string{c.key}, Args: map[string]string{"value": c.value, "for": c.length}, Reason: "r"})
		require.Equal(t, c.rule, p.Rule, "%s %s", c.key, c.value)
		require.Equal(t, c.rule == "", p.Refused == "")
	}
	// The old value may be one that is refused now.
	attempts.Args = map[string]string{"value": "3"}
	require.Empty(t, plan(t, admin, attempts).Final)
	w.exec("UPDATE public.dot_config_rule SET highest = 5 WHERE key = 'webhook.max_attempts'")
	p = plan(t, admin, attempts)
	require.Empty(t, p.Refused)
	require.Empty(t, p.Undo)
	require.Equal(t, "the old value is refused now, so it cannot be set again", p.Final)
	for _, invalid := range []string{"yes", "1"} {
		require.Contains(t, apply(t, admin, plan(t, admin, request(invalid, ""))).Refused, "true or false")
	}
}

// The actions do not accept MOT, which DP6 §3.4 excludes, as an executor kind.
func TestExecutorPlan(t *testing.T) {
	w := newWorld(t)
	admin := w.client("workflow_admin")
	request := func(kind string) queue.Request {
		return queue.Request{Action: queue.ActExecRegister, Args: map[string]string{"id": "kg", "kind": kind, "domains": "iu, kg", "cadence": "1m", "stale-after": "5m", "owner-role": "dot_executor"}}
	}
	for _, bad := range []string{"MOT", "mot", "DOT ", "future_MOT_executor", " ", "dot"} {
		_, err := admin.Plan(context.Background(), request(bad))
		kind(t, queue.KindUsage, err)
		require.Contains(t, err.Error(), "future_Kestra_adapter", "it says what is admitted")
		// Apply refuses a plan that was not made by Plan.
		_, err = admin.Apply(context.Background(), queue.Plan{Request: queue.Request{Action: queue.ActExecRegister, Actor: "ann", Args: request(bad).Args}})
		kind(t, queue.KindUsage, err)
	}
	require.Zero(t, get[int](w, "SELECT count(*) FROM public.queue_heartbeat WHERE NOT tick_worker"))
	_, err := admin.Plan(context.Background(), request(""))
	kind(t, queue.KindUsage, err)
	unsaid := request("")
	delete(unsaid.Args, "kind")
	require.Equal(t, "external_worker", plan(t, admin, unsaid).Request.Args["kind"])
	for arg, bad := range map[string][2]string{
		"stale-after": {"30s", "the stale threshold (30 s) must not be below the cadence (60 s) (--stale-after)"},
		"domains":     {"iu,iu", "the domain 'iu' is named twice (--domains)"}, "id": {"_x", "must match"},
	} {
		r := request("Agent")
		r.Args[arg] = bad[0]
		_, err := admin.Plan(context.Background(), r)
		require.ErrorContains(t, err, bad[1], "the preview refuses what the change would refuse")
	}
	first, second := plan(t, admin, request("Agent")), plan(t, admin, request("DOT"))
	require.EqualValues(t, 1, apply(t, admin, first).Done)
	require.Contains(t, apply(t, admin, second).Refused, "already registered, by ann")
	require.Equal(t, "Agent {iu,kg} 60 300", get[string](w, `SELECT concat_ws(' ', executor_kind, domain_scope::text, expected_cadence_seconds,
		stale_threshold_seconds) FROM public.queue_heartbeat WHERE executor_id = 'kg'`))
	require.Equal(t, "exists", plan(t, admin, request("Agent")).Rule)

	host := pgtest.Login(t, w.db, "dot_executor")
	owner := queue.Request{Action: queue.ActExecOwner, Targets: []string{"kg"}, Args: map[string]string{"owner-role": host}, Reason: "its own"}
	given := plan(t, admin, owner)
	require.Equal(t, []string{"kg", "dot_executor", host + "; logins that may work as this executor: 1"},
		[]string{given.Lines[0].Value.String(), given.Lines[1].Value.String(), given.Lines[2].Value.String()})
	require.EqualValues(t, 1, apply(t, admin, given).Done)
	require.Equal(t, host, get[string](w, "SELECT owner_role FROM public.queue_heartbeat WHERE executor_id = 'kg'"))
	owner.Args["owner-role"] = "no_such_role"
	_, err = admin.Plan(context.Background(), owner)
	kind(t, queue.KindUsage, err)
	require.Contains(t, err.Error(), "no_such_role does not exist")

	gone := plan(t, admin, queue.Request{Action: queue.ActExecDeregister, Targets: []string{"kg"}, Reason: "moved"})
	require.EqualValues(t, 1, apply(t, admin, gone).Done)
	require.Contains(t, apply(t, admin, gone).Refused, "was deregistered already by ann")
	for id, rule := range map[string]string{"kg": "gone", "no_such": "not_found", "webhook_router": "tick_worker"} {
		require.Equal(t, rule, plan(t, admin, queue.Request{Action: queue.ActExecDeregister, Targets: []string{id}, Reason: "r"}).Rule)
	}
}

func TestAckPlan(t *testing.T) {
	w := newWorld(t)
	w.silent("kg", 400)
	w.silent("dot1", 4000)
	admin := w.client("queue_viewer", "workflow_admin")
	key := get[string](w, "SELECT alert_key FROM public.v_queue_alert WHERE subject = 'dot1'")
	request := queue.Request{Action: queue.ActAck, Targets: []string{"kg", "dot1", "kg", key, "nobody"}, Args: map[string]string{"comment": "mine", "for": "2m"}}
	p := plan(t, admin, request)
	require.EqualValues(t, 2, p.Count, "an alert that is named twice is one")
	require.EqualValues(t, 1, p.Skipped)
	bob := w.client("queue_viewer", "workflow_admin")
	bob.WithActor("bob")
	require.EqualValues(t, 1, apply(t, bob, plan(t, bob, queue.Request{Action: queue.ActAck, Targets: []string{"kg"}, Args: map[string]string{"comment": "was faster"}})).Done)
	res := apply(t, admin, p)
	require.EqualValues(t, 1, res.Done)
	require.EqualValues(t, 1, res.Skipped)
	require.Empty(t, res.Refused, "something was done")
	require.Contains(t, res.Results[0].Why.String(), "acknowledged by bob since")
	require.Equal(t, "ack", get[string](w, "SELECT action FROM public.queue_operator_action WHERE id = $1 AND outcome = 'done'", res.AuditID))
	require.Contains(t, plan(t, admin, request).Results[0].Why.String(), "acknowledged already, by bob: was faster")
	s, err := admin.Snapshot(context.Background(), 0)
	require.NoError(t, err)
	acked := map[string]string{}
	for _, a := range s.Alerts {
		acked[a.Subject.String()] = a.AckedBy.String()
	}
	require.Equal(t, map[string]string{"kg": "bob", "dot1": "ann"}, acked)
	h, err := admin.List(context.Background(), queue.Query{Kind: queue.ListAlertHistory, ID: "kg"})
	require.NoError(t, err)
	require.Len(t, queue.Of[[]queue.AlertAck](h), 1)
	un := plan(t, admin, queue.Request{Action: queue.ActUnack, Targets: []string{"kg"}, Args: map[string]string{"comment": "bob left"}})
	require.EqualValues(t, 1, apply(t, admin, un).Done)
	require.Contains(t, apply(t, admin, un).Refused, "is not acknowledged")

	// What the target names by the time of the change is another alert: one that has become critical, or a new silence.
	again := plan(t, admin, queue.Request{Action: queue.ActAck, Targets: []string{"kg"}, Args: map[string]string{"comment": "mine"}})
	require.Contains(t, lines(again), "warning")
	w.exec("UPDATE public.queue_heartbeat SET expected_cadence_seconds = 1 WHERE executor_id = 'kg'")
	res = apply(t, admin, again)
	require.Contains(t, res.Refused, "has become critical since the preview")
	require.Regexp(t, "^ack .*kg.*: ann, mine, refused: changed$", auditRow(w, res.AuditID))
	w.exec("UPDATE public.queue_heartbeat SET last_beat_at = last_beat_at - interval '1 s', expected_cadence_seconds = 60 WHERE executor_id = 'kg'")
	require.Contains(t, apply(t, admin, again).Refused, "is not open: it has ended")
	w.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() WHERE executor_id = 'kg'")
	require.Contains(t, apply(t, admin, queue.Plan{Request: queue.Request{Action: queue.ActAck, Targets: []string{"kg"}, Actor: "ann",
		Args: map[string]string{"comment": "c", "for": "2m"}}}).Refused, "alert kg is not open: it has ended")
}

func TestTickPlan(t *testing.T) {
	w := newWorld(t)
	dot := w.client("queue_viewer", "dot_executor")
	p := plan(t, dot, queue.Request{Action: queue.ActTick, Args: map[string]string{"worker": "config_expiry"}})
	res := apply(t, dot, p)
	require.EqualValues(t, 1, res.Done)
	require.Regexp(t, `^nothing to do, in [0-9.]+ ms$`, res.Results[0].Why.String())
	require.Equal(t, "tick config_expiry ann done", get[string](w, "SELECT concat_ws(' ', action, target, actor, outcome) FROM public.queue_operator_action WHERE id = $1", res.AuditID))
	w.exec("UPDATE public.dot_config SET value = '0' WHERE key = 'queue.tick.config_expiry.interval_seconds'")
	require.Contains(t, apply(t, dot, p).Refused, "interval_seconds is 0")
	p = plan(t, dot, queue.Request{Action: queue.ActTick, Args: map[string]string{"worker": "config_expiry"}})
	require.Equal(t, "config_expiry is paused (queue.tick.config_expiry.interval_seconds is 0): resume it first", p.Refused, "the preview says it already")
	at, refused, err := dot.Heartbeat(context.Background(), "config_expiry", "{}")
	require.NoError(t, err)
	require.Empty(t, at)
	require.Contains(t, refused, "config_expiry is a tick worker, and only its run writes its heartbeat")
}

func TestMarkPlan(t *testing.T) {
	w := newWorld(t)
	op := w.client("queue_viewer", "dead_letter_operator")
	mark := func(label string) queue.Request {
		return queue.Request{Action: queue.ActMark, Args: map[string]string{"label": label}}
	}
	p := plan(t, op, mark(" deploy 4.2 "))
	require.EqualValues(t, 1, p.Count)
	require.Equal(t, "qtop mark 'deploy 4.2'", p.Command)
	require.Zero(t, get[int](w, "SELECT count(*) FROM public.queue_mark"), "a plan changes nothing")
	res := apply(t, op, p)
	require.Equal(t, "marked", res.Results[0].Outcome)
	require.Positive(t, res.AuditID)
	require.Equal(t, "deploy 4.2 ann", get[string](w, "SELECT label || ' ' || created_by FROM public.queue_mark WHERE mark_id = $1::text::bigint", res.Results[0].NewID))
	require.Contains(t, apply(t, op, p).Refused, "ann set a mark with this label at")
	require.Contains(t, lines(plan(t, op, mark("rollback"))), "deploy 4.2 by ann")
	for _, bad := range []string{"", "  ", strings.Repeat("x", 201)} {
		_, err := op.Plan(context.Background(), mark(bad))
		kind(t, queue.KindUsage, err)
	}
	viewer := w.client("queue_viewer")
	_, err := viewer.Plan(context.Background(), mark("x"))
	kind(t, queue.KindPermission, err)
	_, err = viewer.Apply(context.Background(), plan(t, op, mark("x")))
	kind(t, queue.KindPermission, err)
	op.WithActor("")
	_, err = op.Plan(context.Background(), mark("x"))
	require.EqualError(t, err, "nobody is named as the actor, and this process has no login name (actor): give --actor NAME or set QTOP_ACTOR")
	kind(t, queue.KindConfig, err)
	_, _, err = op.Heartbeat(context.Background(), "x", "{}")
	require.ErrorContains(t, err, "nobody is named as the actor")
	s, err := op.Snapshot(context.Background(), 0)
	require.NoError(t, err)
	require.Len(t, s.Marks, 1)
	require.Equal(t, "deploy 4.2", s.Marks[0].Label.String())
}

// auditRow returns what the audit has of an action.
func auditRow(w *world, id int64) string {
	return get[string](w, "SELECT format('%s %s: %s, %s, %s', action, target, actor, reason, outcome) FROM public.queue_operator_action WHERE id = $1", id)
}

// A change that replaces a value is refused, and audited, if somebody else replaced it since the preview.
func TestValueChangedSinceThePreview(t *testing.T) {
	w := newWorld(t)
	admin := w.client("queue_viewer", "workflow_admin")
	w.silent("kg", 10)
	hosts := []string{pgtest.Login(t, w.db, "dot_executor"), pgtest.Login(t, w.db, "dot_executor")}
	set := func(a queue.ActionID, targets []string, args ...string) queue.Request {
		r := queue.Request{Action: a, Targets: targets, Reason: "r", Args: map[string]string{}}
		for i := 0; i < len(args); i += 2 {
			r.Args[args[i]] = args[i+1]
		}
		return r
	}
	codex, kg := []string{"Codex"}, []string{"kg"}
	for _, role := range hosts {
		require.Empty(t, apply(t, admin, plan(t, admin, set(queue.ActProducerSet, codex, "role", role))).Refused)
	}
	for _, x := range []struct {
		mine, theirs       queue.Request
		now, want, audited string
	}{
		// without either role every producer may enqueue: the preview showed that one is left
		{set(queue.ActProducerSet, codex, "role", hosts[1], "allowed", "false"), set(queue.ActProducerSet, codex, "role", hosts[0], "allowed", "false"),
			"SELECT string_agg(producer_role, ' ') FROM public.executor_producer WHERE executor_kind = 'Codex'", hosts[1],
			"executor_producer_set Codex " + hosts[1] + ": ann, r, refused: changed"},
		{set(queue.ActExecOwner, kg, "owner-role", hosts[0]), set(queue.ActExecOwner, kg, "owner-role", hosts[1]),
			"SELECT owner_role FROM public.queue_heartbeat WHERE executor_id = 'kg'", hosts[1], "executor_owner kg: ann, r, refused: changed"},
		{set(queue.ActEnvironment, nil, "environment", "test", "guard", "open"), set(queue.ActEnvironment, nil, "environment", "staging", "guard", "open"),
			"SELECT value FROM public.dot_config WHERE key = 'queue.environment'", "staging open", "environment_set queue.environment: ann, r, refused: changed"},
	} {
		p := plan(t, admin, x.mine)
		require.Empty(t, p.Refused)
		require.Empty(t, apply(t, admin, plan(t, admin, x.theirs)).Refused)
		res := apply(t, admin, p)
		require.Regexp(t, "was changed since the preview, to .*"+x.want+": plan the change again", res.Refused)
		require.Equal(t, x.audited, auditRow(w, res.AuditID))
		require.Equal(t, x.want, get[string](w, x.now))
		require.Empty(t, apply(t, admin, plan(t, admin, x.mine)).Refused, "after a new preview")
	}
	made := func(lane string) queue.Request {
		return set(queue.ActEventTypeSet, []string{"iu/made"}, "stream", "update", "lane", lane, "active", "true")
	}
	p := plan(t, admin, made("delayed"))
	require.Empty(t, apply(t, admin, plan(t, admin, made("immediate"))).Refused)
	res := apply(t, admin, p)
	require.Equal(t, "the event type was changed since the preview: plan the change again", res.Refused)
	require.Equal(t, "event_type_set iu/made: ann, r, refused: changed", auditRow(w, res.AuditID))
	apply(t, admin, plan(t, admin, set(queue.ActEventTypeSet, []string{"iu/made"}, "active", "false")))
	apply(t, admin, plan(t, admin, set(queue.ActEventTypeSet, []string{"iu/made"}, "description", "old")))
	require.Equal(t, "old false", get[string](w, "SELECT description || ' ' || active FROM public.event_type_registry WHERE event_type = 'made'"), "what is not named stays")
}
