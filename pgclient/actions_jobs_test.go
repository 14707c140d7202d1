// Actions on jobs: an action does what its preview says, for webhook and job dead letters in one
// request, for live jobs, for leases and for job subscriptions.

package pgclient_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

func lines(p queue.Plan) (s string) {
	for _, l := range p.Lines {
		s += l.Label + " " + l.Value.String() + "\n"
	}
	return s
}

func outcomes(all []queue.Outcome) map[string]string {
	out := map[string]string{}
	for _, o := range all {
		out[o.ID] = strings.TrimSpace(o.Outcome + " " + o.Why.String())
	}
	return out
}

func TestDeadLettersOfBothSources(t *testing.T) {
	w := newWorld(t)
	hooks := w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute}, deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute})
	jobs := w.dieJobs(jobDeadLetter{"kg.reindex", "kg", "HTTP_503", time.Minute}, jobDeadLetter{"kg.reindex", "kg", "TIMEOUT", time.Minute})
	op := w.client("queue_viewer", "dead_letter_operator")
	count := func() string {
		return get[string](w, `SELECT concat_ws(' ', (SELECT count(*) FROM public.dead_letter_open), (SELECT count(*) FROM public.job_dead_letter WHERE resolved_at IS NULL),
			(SELECT count(*) FROM public.job_queue), (SELECT count(*) FROM public.queue_operator_action WHERE action LIKE '%dead_letter%'))`)
	}
	require.Equal(t, "2 2 0 0", count())
	p := plan(t, op, queue.Request{Action: queue.ActRequeue, Filter: "code:HTTP_503", Reason: "back"})
	require.EqualValues(t, 3, p.Count)
	require.ElementsMatch(t, append([]string{jobs[0]}, hooks...), p.Request.Targets)
	require.Contains(t, lines(p), "to 1 × job kg.reindex (kg) HTTP_503 (0 already waiting, 1 Agent executor subscribes to it)")
	require.Contains(t, lines(p), "to 2 × hooks.acme.test HTTP_503")
	require.Contains(t, lines(p), "audit two rows")
	require.Equal(t, "2 2 0 0", count(), "a plan changes nothing")
	res := apply(t, op, p)
	require.EqualValues(t, 3, res.Done)
	require.Equal(t, "0 1 1 2", count())
	require.Equal(t, get[int64](w, "SELECT max(id) FROM public.queue_operator_action"), res.AuditID, "the last audit row is named")
	for _, o := range res.Results {
		require.NotEmpty(t, o.NewID, o.ID)
		require.Equal(t, "requeued", o.Outcome, "one word for both")
	}

	job := get[string](w, "SELECT job_id::text FROM public.job_queue")
	undo := plan(t, op, queue.Request{Action: queue.ActUndoRequeue, Targets: []string{hooks[0], jobs[0], jobs[1]}, Reason: "too early"})
	require.EqualValues(t, 2, undo.Count)
	require.Equal(t, map[string]string{
		hooks[0]: "would_requeue_undo", jobs[0]: "would_requeue_undo", jobs[1]: "skipped not replayed: there is nothing to undo",
	}, outcomes(undo.Results))
	res = apply(t, op, undo)
	require.EqualValues(t, 2, res.Done)
	require.EqualValues(t, 1, res.Skipped)
	require.Zero(t, get[int](w, "SELECT count(*) FROM public.job_queue"), "the job of the replay is gone")
	none := plan(t, op, queue.Request{Action: queue.ActUndoRequeue, Targets: jobs[:1], Reason: "r"})
	require.Contains(t, none.Refused, "not replayed")

	// A request for both sources may use the resolution of either source; each source stores its
	// own word.
	for i, word := range []string{"done_otherwise", "delivered_otherwise"} {
		targets := []string{hooks[0], jobs[1]}
		p = plan(t, op, queue.Request{Action: queue.ActResolve, Targets: targets, Reason: "by hand", Args: map[string]string{"resolution": word}})
		require.EqualValues(t, 2, apply(t, op, p).Done, word)
		require.Equal(t, "delivered_otherwise done_otherwise", get[string](w, `SELECT concat_ws(' ', (SELECT max(resolution::text) FROM public.dead_letter_resolutions),
			(SELECT resolution FROM public.job_dead_letter WHERE 'job:' || dead_letter_id = $1))`, jobs[1]))
		p = plan(t, op, queue.Request{Action: queue.ActReopen, Targets: targets, Reason: "it was not"})
		require.EqualValues(t, 2, apply(t, op, p).Done, i)
	}

	// The flag that switches requeueing off refuses the whole request: neither source is changed.
	p = plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: []string{hooks[0], jobs[1]}, Reason: "r"})
	require.EqualValues(t, 2, p.Count)
	w.exec("UPDATE public.dot_config SET value = 'false' WHERE key = 'queue.dlq.replay_enabled'")
	was := count()
	res = apply(t, op, p)
	require.Contains(t, res.Refused, "queue.dlq.replay_enabled is not true")
	require.Equal(t, was[:5], count()[:5])
	require.Equal(t, "disabled", plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: jobs[1:], Reason: "r"}).Rule)

	for _, bad := range []string{"job:", "job:1", "job:" + hooks[0], "event:1", job} {
		_, err := op.Plan(context.Background(), queue.Request{Action: queue.ActRequeue, Targets: []string{hooks[1], bad}, Reason: "r"})
		kind(t, queue.KindUsage, err)
	}
	_, err := w.client("queue_viewer").Plan(context.Background(), queue.Request{Action: queue.ActRequeue, Targets: jobs, Reason: "r"})
	kind(t, queue.KindPermission, err)
}

// Many consoles replay one dead letter at the same time: one job is made, and the other consoles
// learn who replayed it.
func TestReplayTwice(t *testing.T) {
	w := newWorld(t)
	made := w.dieJobs(jobDeadLetter{"kg.reindex", "kg", "TIMEOUT", time.Minute})
	const n = 4
	var ops []*console
	var plans []queue.Plan
	results := make([]queue.Result, n)
	errs := make([]error, n)
	for i := range n {
		c := w.client("queue_viewer", "dead_letter_operator")
		c.WithActor(fmt.Sprint("op", i))
		ops, plans = append(ops, c), append(plans, plan(t, c, queue.Request{Action: queue.ActRequeue, Targets: made, Reason: "back"}))
	}
	var wg sync.WaitGroup
	for i, c := range ops {
		wg.Go(func() { results[i], errs[i] = c.Apply(context.Background(), plans[i]) })
	}
	wg.Wait()
	done := int64(0)
	for i := range n {
		require.NoError(t, errs[i])
		done += results[i].Done
		if results[i].Done == 0 {
			require.Regexp(t, `already replayed by op\d at \d{4}-.* as job `, results[i].Results[0].Why.String())
		}
	}
	require.EqualValues(t, 1, done)
	require.Equal(t, 1, get[int](w, "SELECT count(*) FROM public.v_job WHERE idempotency_key LIKE 'replay:%'"))
}

func TestCancelPlan(t *testing.T) {
	w := newWorld(t)
	w.agent("kg_1", 5)
	var ids []string
	for range 4 {
		ids = append(ids, w.enqueue("kg.reindex", "kg", 5))
	}
	other := w.enqueue("iu.route", "iu", 5)
	held, _ := w.claim("kg_1", "kg.reindex")
	op := w.client("dead_letter_operator")
	before := get[string](w, "SELECT string_agg(status, ' ' ORDER BY job_id) FROM public.job_queue")
	p := plan(t, op, queue.Request{Action: queue.ActJobCancel, Filter: "kind=kg.reindex domain=kg", Reason: "wrong input"})
	require.EqualValues(t, 4, p.Count)
	require.ElementsMatch(t, ids, p.Request.Targets, "the filter is frozen to ids")
	require.Contains(t, lines(p), "of them 3 × kg.reindex (kg) queued\nof them 1 × kg.reindex (kg) leased\nheld now 1 by kg_1")
	require.Equal(t, "qtop job cancel --filter 'kind=kg.reindex domain=kg' --reason 'wrong input'", p.Command)
	require.Equal(t, before, get[string](w, "SELECT string_agg(status, ' ' ORDER BY job_id) FROM public.job_queue"), "a plan changes nothing")

	// A job that a worker claimed after the preview is not cancelled: the operator asked for queued
	// jobs.
	queued := plan(t, op, queue.Request{Action: queue.ActJobCancel, Filter: "kind:kg.* status:queued", Reason: "r"})
	require.EqualValues(t, 3, queued.Count)
	require.Contains(t, lines(queued), "held now none")
	taken, _ := w.claim("kg_1", "kg.reindex")
	res := apply(t, op, queued)
	require.EqualValues(t, 2, res.Done)
	require.EqualValues(t, 1, res.Skipped)
	require.Equal(t, "skipped no longer matches the filter", outcomes(res.Results)[taken])
	require.NotZero(t, res.AuditID)

	p = plan(t, op, queue.Request{Action: queue.ActJobCancel, Targets: ids, Reason: "r"})
	require.EqualValues(t, 2, p.Count)
	require.EqualValues(t, 2, p.Skipped)
	require.Contains(t, lines(p), "skipped 2: the job is finished already: cancelled at")
	res = apply(t, op, p)
	require.EqualValues(t, 2, res.Done)
	require.Equal(t, "cancelled", outcomes(res.Results)[held])
	require.Equal(t, "0 4 1", get[string](w, `SELECT concat_ws(' ', (SELECT count(*) FROM public.job_lease), (SELECT count(*) FROM public.job_history WHERE status = 'cancelled'),
		(SELECT count(*) FROM public.job_queue))`), "the leases are empty and gone, the other lane stands")
	again := plan(t, op, queue.Request{Action: queue.ActJobCancel, Targets: ids, Reason: "r"})
	require.Contains(t, again.Refused, "none of the selected jobs can be cancelled: the job is finished already")
	require.NotEmpty(t, apply(t, op, again).Refused)
	require.Equal(t, "no row matches the selection", plan(t, op, queue.Request{Action: queue.ActJobCancel, Filter: "kind=none", Reason: "r"}).Refused)
	for _, empty := range []string{"", "  "} {
		_, err := op.Plan(context.Background(), queue.Request{Action: queue.ActJobCancel, Filter: empty, Reason: "r"})
		kind(t, queue.KindUsage, err)
		require.Contains(t, err.Error(), "empty filter")
	}
	for _, bad := range []queue.Request{{Targets: []string{"12"}, Reason: "r"}, {Targets: []string{"job:" + other}, Reason: "r"}, {Targets: []string{other}}, {Filter: "status:succeeded", Reason: "r"}} {
		bad.Action = queue.ActJobCancel
		_, err := op.Plan(context.Background(), bad)
		kind(t, queue.KindUsage, err)
	}
	_, err := w.client("queue_viewer").Plan(context.Background(), queue.Request{Action: queue.ActJobCancel, Targets: []string{other}, Reason: "r"})
	kind(t, queue.KindPermission, err)
}

// A job that is claimed after the filter was read again, and before it is cancelled, stays with its
// worker.
func TestJobCancelBesideAClaim(t *testing.T) {
	w := newWorld(t)
	id := w.enqueue("kg.reindex", "kg", 5)
	op := w.client("dead_letter_operator")
	p := plan(t, op, queue.Request{Action: queue.ActJobCancel, Filter: "status:queued", Reason: "r"})
	require.EqualValues(t, 1, p.Count)
	w.exec(`CREATE OR REPLACE FUNCTION public.fn_job_ids(p_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $$ BEGIN -- the cancel begins: a worker claims
		WITH l AS (INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live)
			VALUES (gen_random_uuid(), 'kg_1', gen_random_uuid(), now() + interval '1 minute', p_ids, 1) RETURNING *)
		UPDATE public.job_queue q SET status = 'leased', lease_owner = l.lease_owner, lease_token = l.lease_token, lease_until = l.lease_until, updated_at = clock_timestamp()
		FROM l WHERE q.job_id = p_ids[1];
		RETURN p_ids;
	END $$`)
	res := apply(t, op, p)
	require.EqualValues(t, 0, res.Done)
	require.EqualValues(t, 1, res.Skipped)
	require.Equal(t, "skipped it has changed since it was selected", outcomes(res.Results)[id])
	require.Equal(t, "leased", get[string](w, "SELECT status FROM public.job_queue"))
}

func TestLeaseReleasePlan(t *testing.T) {
	w := newWorld(t)
	w.agent("kg_1", 5)
	w.enqueue("kg.reindex", "kg", 5)
	w.enqueue("kg.embed", "kg", 1)
	first, expired := w.claim("kg_1", "kg.reindex")
	dying, last := w.claim("kg_1", "kg.embed")
	w.exec("UPDATE public.job_queue SET lost_leases = 1 WHERE job_id = $1", dying)
	op := w.client("dead_letter_operator")
	request := queue.Request{Action: queue.ActLeaseRelease, Targets: []string{expired, last}, Reason: "host died"}
	require.Contains(t, plan(t, op, request).Refused, "none of the selected leases can be released: the lease runs until")
	w.exec("UPDATE public.job_lease SET lease_until = now() - interval '1 minute'")
	p := plan(t, op, request)
	require.EqualValues(t, 2, p.Count)
	require.Contains(t, lines(p), "of kg_1, expired at")
	require.Contains(t, lines(p), "1 job returns to queued, 0 die")
	require.Contains(t, lines(p), "0 jobs return to queued, 1 dies")
	require.Equal(t, 2, get[int](w, "SELECT count(*) FROM public.job_lease"), "a plan changes nothing")
	res := apply(t, op, p)
	require.EqualValues(t, 2, res.Done)
	require.NotZero(t, res.AuditID)
	require.Equal(t, "queued 1", get[string](w, "SELECT status || ' ' || lost_leases FROM public.job_queue WHERE job_id = $1", first))
	require.Equal(t, "LEASE_LOST", get[string](w, "SELECT failure_code FROM public.job_dead_letter WHERE job_id = $1", dying))
	require.Contains(t, plan(t, op, request).Refused, "no such lease")
	_, err := op.Plan(context.Background(), queue.Request{Action: queue.ActLeaseRelease, Targets: []string{"kg_1"}, Reason: "r"})
	kind(t, queue.KindUsage, err)
	_, err = op.Plan(context.Background(), queue.Request{Action: queue.ActLeaseRelease, Reason: "r"})
	kind(t, queue.KindUsage, err)
}

// What somebody else creates or changes at the same time is not overwritten.
func TestChangedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.silent("kg_1", 1)
	admin := w.client("queue_viewer", "workflow_admin")
	subscribe := queue.Request{Action: queue.ActJobSubscribe, Targets: []string{"kg_1"}, Args: map[string]string{"kind": "kg.reindex", "parallel": "9"}, Reason: "r"}
	schedule := queue.Request{Action: queue.ActFlagSet, Targets: []string{"queue.retry.schedule.kg.reindex"}, Args: map[string]string{"value": "9s"}, Reason: "r"}
	other := w.db.Conn(t, pgtest.Login(t, w.db, "workflow_admin"))
	for _, x := range []struct {
		mine         queue.Request
		theirs, want string
	}{
		{subscribe, "SELECT public.fn_job_subscription_set('kg_1', 'kg.reindex', NULL, 0, 3, true, NULL, 'ben', 'r')", "changed since the preview, last by ben"},
		{subscribe, "UPDATE public.job_subscription SET max_parallel = 4, updated_by = 'ben'", "changed since the preview, last by ben"},
		{schedule, "SELECT public.fn_dot_config_set('queue.retry.schedule.kg.reindex', '4s', 'ben', 'r')", `was changed to "4s" by ben`},
		{schedule, "SELECT public.fn_dot_config_set('queue.retry.schedule.kg.reindex', '5s', 'ben', 'r')", `was changed to "5s" by ben`},
	} {
		p := plan(t, admin, x.mine)
		require.Empty(t, p.Refused)
		tx, err := other.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), x.theirs)
		require.NoError(t, err)
		var res queue.Result
		got := make(chan error, 1)
		go func() {
			var err error
			res, err = admin.Apply(context.Background(), p)
			got <- err
		}()
		require.Eventually(t, func() bool {
			return get[bool](w, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
		}, time.Minute, 10*time.Millisecond)
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-got)
		require.Contains(t, res.Refused, x.want)
	}
	require.Equal(t, 4, get[int](w, "SELECT max_parallel FROM public.job_subscription"))
	require.Equal(t, "5s", get[string](w, "SELECT value FROM public.dot_config WHERE key = 'queue.retry.schedule.kg.reindex'"))
}

func TestSubscribePlan(t *testing.T) {
	w := newWorld(t)
	w.silent("kg_1", 1)
	for i := range 6 {
		w.exec("SELECT public.fn_job_enqueue('kg.reindex', $1, $2, p_priority => $3)", []string{"kg", "iu"}[i%2], []string{"Agent", "Agent", "DOT"}[i/2], 50+50*(i%2))
	}
	admin := w.client("workflow_admin")
	request := func(args ...string) queue.Request {
		r := queue.Request{Action: queue.ActJobSubscribe, Targets: []string{"kg_1"}, Args: map[string]string{}, Reason: "r"}
		for i := 0; i < len(args); i += 2 {
			r.Args[args[i]] = args[i+1]
		}
		return r
	}
	p := plan(t, admin, request("kind", "kg.reindex", "parallel", "3", "notes", "ask bob"))
	require.Contains(t, lines(p), "for kg.reindex in every domain\nbefore no such job subscription\nafter enabled, priority 0 or higher, 3 at once, notes \"ask bob\"\n"+
		"governs kg.reindex (iu), kg.reindex (kg)\nwaiting 4 jobs that it admits\n", "those for DOT are not its own")
	require.Equal(t, "qtop executor subscribe kg_1 --kind=kg.reindex --floor=0 --parallel=3 --enabled=true --notes='ask bob' --reason r", p.Command)
	require.Zero(t, get[int](w, "SELECT count(*) FROM public.job_subscription"), "a plan changes nothing")
	stale := plan(t, admin, request("kind", "kg.reindex", "parallel", "9"))
	res := apply(t, admin, p)
	require.Equal(t, map[string]string{"kg_1": "created kg.reindex in every domain"}, outcomes(res.Results))
	require.NotZero(t, res.AuditID)
	res = apply(t, admin, stale)
	require.Contains(t, res.Refused, "changed since the preview, last by ann")
	require.Equal(t, "job_subscription_set kg_1: ann, r, refused: changed", auditRow(w, res.AuditID))
	require.Equal(t, 3, get[int](w, "SELECT max_parallel FROM public.job_subscription"))

	p = plan(t, admin, request("kind", "kg.reindex", "floor", "60", "parallel", "9"))
	require.Contains(t, lines(p), "before enabled, priority 0 or higher, 3 at once")
	require.Contains(t, lines(p), "waiting 2 jobs that it admits")
	stale = plan(t, admin, request("kind", "kg.reindex", "enabled", "false"))
	require.Contains(t, lines(stale), "governs nothing while it is disabled")
	require.Contains(t, lines(stale), "waiting 4 jobs that it would admit")
	require.Equal(t, map[string]string{"kg_1": "changed kg.reindex in every domain"}, outcomes(apply(t, admin, p).Results))
	require.Contains(t, apply(t, admin, stale).Refused, "changed since the preview")

	p = plan(t, admin, request())
	require.Contains(t, lines(p), "governs nothing: more specific subscriptions govern kg.reindex (iu), kg.reindex (kg)")
	require.Contains(t, lines(p), "waiting 0 jobs")
	p = plan(t, admin, request("kind", "kg.reindex", "domain", "kg"))
	require.Contains(t, lines(p), "governs kg.reindex (kg)\nwaiting 2")
	require.Contains(t, lines(plan(t, admin, request("kind", "none"))), "no such job was ever enqueued")

	// Jobs wait for this executor, so it cannot be deregistered.
	gone := queue.Request{Action: queue.ActExecDeregister, Targets: []string{"kg_1"}, Reason: "moved"}
	refused := plan(t, admin, gone)
	require.Equal(t, "work_waits", refused.Rule)
	require.Equal(t, "6 jobs wait that job subscriptions of executor kg_1 admit: disable those subscriptions first", refused.Refused)
	require.Equal(t, refused.Refused, get[string](w, "SELECT public.fn_queue_executor_waits('kg_1')"), "as the database says it")
	was := get[string](w, "SELECT executor_kind FROM public.queue_heartbeat WHERE executor_id = 'kg_1'")
	w.exec("UPDATE public.queue_heartbeat SET executor_kind = 'Codex' WHERE executor_id = 'kg_1'")
	require.Empty(t, plan(t, admin, gone).Refused, "its subscriptions are of another kind")
	require.Nil(t, get[*string](w, "SELECT public.fn_queue_executor_waits('kg_1')"))
	w.exec("UPDATE public.queue_heartbeat SET executor_kind = '" + was + "' WHERE executor_id = 'kg_1'")
	w.claim("kg_1", "kg.reindex")
	require.Equal(t, "executor kg_1 holds 1 job: let the job finish, or cancel it", plan(t, admin, gone).Refused)
	require.Equal(t, "executor kg_1 holds 1 job: let the job finish, or cancel it", get[string](w, "SELECT public.fn_queue_executor_waits('kg_1')"))
	unseen := queue.Plan{Request: gone}
	unseen.Request.Actor = "ann"
	require.Contains(t, apply(t, admin, unseen).Refused, "holds 1 job", "nor without the preview")

	for id, rule := range map[string]string{"no_such": "not_found", "webhook_router": "tick_worker"} {
		r := request()
		r.Targets = []string{id}
		require.Equal(t, rule, plan(t, admin, r).Rule)
	}
	for _, bad := range [][]string{{"floor", "high"}, {"floor", "40000"}, {"parallel", "0"}, {"parallel", "1.5"}, {"enabled", "yes"}, {"kind", "1x"}, {"domain", "KG"}, {"floor", ""}, {"parallel", "99999999999"}} {
		_, err := admin.Plan(context.Background(), request(bad...))
		kind(t, queue.KindUsage, err)
	}
	two := request()
	two.Targets = []string{"kg_1", "b"}
	_, err := admin.Plan(context.Background(), two)
	kind(t, queue.KindUsage, err)
	_, err = w.client("queue_viewer").Plan(context.Background(), request())
	kind(t, queue.KindPermission, err)
}

// A job subscription that is disabled and then enabled again has all its former values.
func TestJobSubscriptionDisabledAndEnabled(t *testing.T) {
	w := newWorld(t)
	w.silent("kg_1", 1)
	admin := w.client("workflow_admin")
	made := apply(t, admin, plan(t, admin, queue.Request{Action: queue.ActJobSubscribe, Targets: []string{"kg_1"}, Reason: "r", Args: map[string]string{
		"kind": "kg.reindex", "floor": "7", "parallel": "3", "notes": "ask bob",
	}}))
	require.Equal(t, map[string]string{"kg_1": "created kg.reindex in every domain"}, outcomes(made.Results))
	id := get[string](w, "SELECT subscription_id::text FROM public.job_subscription")
	turn := func(a queue.ActionID) queue.Request {
		return queue.Request{Action: a, Targets: []string{id}, Reason: "too fast"}
	}
	stands := func() string {
		return get[string](w, "SELECT concat_ws(' ', job_kind, event_domain, priority_floor, max_parallel, enabled, notes) FROM public.job_subscription")
	}
	require.Contains(t, plan(t, admin, turn(queue.ActJobSubscriptionOn)).Refused, "enabled already")
	first, second := plan(t, admin, turn(queue.ActJobSubscriptionOff)), plan(t, admin, turn(queue.ActJobSubscriptionOff))
	require.Equal(t, "qtop executor subscribe kg_1 --kind=kg.reindex --floor=7 --parallel=3 --enabled=false --notes='ask bob' --reason 'too fast'", first.Command)
	require.Contains(t, lines(first), "after disabled, priority 7 or higher, 3 at once")
	require.NotZero(t, apply(t, admin, first).AuditID)
	require.Equal(t, "kg.reindex 7 3 f ask bob", stands())
	require.Contains(t, apply(t, admin, second).Refused, "changed since the preview", "two operators, one turn")
	require.Empty(t, apply(t, admin, plan(t, admin, turn(queue.ActJobSubscriptionOn))).Refused)
	require.Equal(t, "kg.reindex 7 3 t ask bob", stands())

	require.Contains(t, plan(t, admin, queue.Request{Action: queue.ActJobSubscriptionOff, Targets: []string{"0190a1b2-1111-4222-8333-0123456789ab"}, Reason: "r"}).Refused, "no job subscription 0190a1b2")
	_, err := admin.Plan(context.Background(), queue.Request{Action: queue.ActJobSubscriptionOff, Targets: []string{"kg_1"}, Reason: "r"})
	kind(t, queue.KindUsage, err)
	_, err = w.client("queue_viewer").Plan(context.Background(), turn(queue.ActJobSubscriptionOff))
	kind(t, queue.KindPermission, err)
}

func TestPutJob(t *testing.T) {
	w := newWorld(t)
	p := enqueue.New(w.client("event_ingest_writer").Client)
	seven := 7
	put := func(j enqueue.Job, after time.Duration) (id, existing string) {
		t.Helper()
		id, existing, err := p.Put(context.Background(), j, after)
		require.NoError(t, err)
		return id, existing
	}
	j := enqueue.Job{
		Kind: "kg.reindex", Domain: "kg", Executor: "DOT", Payload: []byte(`{"n": 12345678901234567890}`), Priority: &seven, IdempotencyKey: "once",
		MaxAttempts: 2, Actor: "ann",
	}
	id, existing := put(j, time.Hour)
	require.Empty(t, existing)
	again, existing := put(j, time.Hour)
	require.Equal(t, []string{id, "queued"}, []string{again, existing})
	ours := j
	ours.Scope = "event_ingest_writer"
	other, existing := put(ours, time.Hour)
	require.Empty(t, existing)
	require.NotEqual(t, id, other)
	w.exec("SELECT public.fn_job_cancel(ARRAY[$1::uuid], 'ann', 'test')", other)
	_, existing = put(ours, time.Hour)
	require.Equal(t, "cancelled", existing)
	require.Equal(t, `7 2 once ann {"n": 12345678901234567890} t`, get[string](w, `SELECT concat_ws(' ', priority, max_attempts, idempotency_key, actor, payload,
		(process_after - enqueued_at BETWEEN interval '59 minutes' AND interval '61 minutes')) FROM public.job_queue WHERE job_id = $1`, id))
	_, existing = put(enqueue.Job{Kind: "kg.reindex", Domain: "kg", Executor: "DOT", Payload: []byte("{}")}, 0)
	require.Empty(t, existing)
	require.Equal(t, "100 20 t", get[string](w, "SELECT concat_ws(' ', priority, max_attempts, ready) FROM public.job_queue WHERE job_id <> $1", id))
	for name, change := range map[string]func(*enqueue.Job){
		"executor": func(j *enqueue.Job) { j.Executor = "MOT" }, "kind": func(j *enqueue.Job) { j.Kind = "1 2" },
		"domain": func(j *enqueue.Job) { j.Domain = "KG" }, "payload": func(j *enqueue.Job) { j.Payload = []byte("[1]") },
		"payload empty": func(j *enqueue.Job) { j.Payload = []byte(" ") }, "priority": func(j *enqueue.Job) { n := 1 << 31; j.Priority = &n },
		"priority low": func(j *enqueue.Job) { n := -1<<31 - 1; j.Priority = &n },
		"payload null": func(j *enqueue.Job) { j.Payload = []byte("null") }, "payload broken": func(j *enqueue.Job) { j.Payload = []byte("{") },
		"payload secret": func(j *enqueue.Job) { j.Payload = []byte(`{"password": "x"}`) }, "tries": func(j *enqueue.Job) { j.MaxAttempts = 1001 },
		"key": func(j *enqueue.Job) { j.IdempotencyKey = strings.Repeat("k", 501) },
	} {
		bad := enqueue.Job{Kind: "kg.reindex", Domain: "kg", Executor: "DOT", Payload: []byte("{}")}
		change(&bad)
		_, _, err := p.Put(context.Background(), bad, 0)
		kind(t, queue.KindUsage, err)
		if where := strings.Fields(name)[0]; where != "tries" {
			require.Contains(t, err.Error(), where, name)
		}
	}
	w.exec("UPDATE public.dot_config SET value = 'false' WHERE key = 'queue.job_substrate.enabled'")
	put(j, time.Hour) // a flag that is off stops claims; jobs are still accepted
	_, _, err := enqueue.New(w.client("workflow_admin").Client).Put(context.Background(), j, time.Hour)
	kind(t, queue.KindPermission, err)
}
