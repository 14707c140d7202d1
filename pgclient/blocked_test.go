package pgclient_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
)

// blockers returns the lines of a preview that say what keeps the work from running.
func blockers(p queue.Plan) (out []string) {
	for _, l := range p.Lines {
		if l.Label == "blocked" {
			out = append(out, l.Value.String())
		}
	}
	return out
}

// host registers a live host that runs these loops.
func (w *world) host(loops ...string) {
	w.t.Helper()
	id := uuid.NewString()
	w.exec("SELECT public.fn_queue_host_register($1, $2, 'v1', $3::text[])", "h"+id[:8], id, loops)
	w.exec("SELECT public.fn_queue_host_beat($1, $2, $3::text[], 0, '{}')", "h"+id[:8], id, loops)

}

func (w *world) flag(key, value string) {
	w.t.Helper()
	w.exec("UPDATE public.dot_config SET value = $2 WHERE key = $1", key, value)
}

// shut suspends the endpoint of a URL with this reason; the reason "circuit" opens its circuit.
func (w *world) shut(url, reason string) {
	w.t.Helper()
	w.exec(`INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, since, until, by)
		SELECT s.id, $2, now(), 'infinity', 'anna' FROM public.subscriptions s WHERE s.callback_url = $1
		ON CONFLICT (subscription_id) DO UPDATE SET reason = excluded.reason`, url, reason)
}

const acmeURL, slowURL = "https://hooks.acme.test/a", "https://slow.test/b"

// The preview of each action that makes sagas names everything that keeps them from being sent. It
// leaves out what the action itself lifts, and what concerns only other rows.
func TestPreviewsSayWhatBlocksWebhooks(t *testing.T) {
	w := newWorld(t)
	hooks := w.die(deadLetter{"order", acmeURL, "HTTP_503", time.Minute}, deadLetter{"order", acmeURL, "HTTP_503", time.Minute}, deadLetter{"invoice", slowURL, "TIMEOUT", time.Minute})
	op := w.client("dead_letter_operator", "queue_viewer")
	admin := w.client("workflow_admin", "queue_viewer")
	requeue := queue.Request{Action: queue.ActRequeue, Targets: hooks, Reason: "r"}
	freeze := queue.Request{Action: queue.ActBulkPlan, Targets: hooks, Reason: "r", Args: map[string]string{}}
	on := queue.Request{Action: queue.ActFlagSet, Targets: []string{"webhook.worker.enabled"}, Reason: "r", Args: map[string]string{"value": "true"}}

	all := []string{"webhook.worker.enabled is off", "no live host runs webhook_worker", "no live host runs saga_orchestrator"}
	w.flag("webhook.worker.enabled", "false")
	require.Equal(t, all, blockers(plan(t, op, requeue)))
	require.ElementsMatch(t, append([]string{"no live host runs bulk_operation_runner"}, all...), blockers(plan(t, op, freeze)))
	id := apply(t, op, plan(t, op, freeze)).Results[0].NewID
	run := queue.Request{Action: queue.ActBulkRun, Targets: []string{id}}
	require.ElementsMatch(t, append([]string{"no live host runs bulk_operation_runner"}, all...), blockers(plan(t, op, run)))
	require.ElementsMatch(t, []string{"no live host runs webhook_worker", "no live host runs webhook_router"}, blockers(plan(t, admin, on)),
		"the flag that is turned on is not named")
	require.Equal(t, "blocked", plan(t, op, requeue).Lines[1].Label, "right after what is taken")

	w.host("webhook_worker", "saga_orchestrator", "bulk_operation_runner", "webhook_router")
	require.Equal(t, []string{"webhook.worker.enabled is off"}, blockers(plan(t, op, run)))
	require.Empty(t, blockers(plan(t, admin, on)))

	w.exec("UPDATE public.queue_host SET last_seen_at = now() + interval '1 hour'") // dead since before the clock of the server went back
	require.ElementsMatch(t, append([]string{"no live host runs bulk_operation_runner"}, all...), blockers(plan(t, op, freeze)))
	require.Contains(t, lines(plan(t, op, freeze)), "no live host runs bulk operations")
	w.exec("UPDATE public.queue_host SET last_seen_at = now()")
	w.flag("webhook.worker.enabled", "true")
	for _, r := range []queue.Request{requeue, freeze, run} {
		require.Empty(t, blockers(plan(t, op, r)))
	}

	// Only the selected rows count: the preview names an endpoint only if selected rows go there.
	w.shut(acmeURL, "circuit")
	require.Equal(t, []string{"hooks.acme.test: circuit open"}, blockers(plan(t, op, requeue)))
	require.Equal(t, []string{"hooks.acme.test: circuit open"}, blockers(plan(t, op, run)))
	require.Empty(t, blockers(plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: hooks[2:], Reason: "r"})))
	w.shut(slowURL, "circuit")
	require.Equal(t, []string{"hooks.acme.test (2), slow.test (1): circuit open"}, blockers(plan(t, op, freeze)))
	for label, request := range map[string]queue.Request{"rate": freeze, "then": run} {
		p := plan(t, op, request)
		at, ok := queue.Find(p.Lines, func(l queue.PlanLine) bool { return l.Label == label })
		require.True(t, ok)
		require.Regexp(t, "^[0-9.]+/s: it waits for .* first, then about [0-9]+s$", at.Value.String(), "no end is promised")
	}
	w.shut(slowURL, "operator")
	require.ElementsMatch(t, []string{"hooks.acme.test: circuit open", "slow.test: endpoint suspended: operator"}, blockers(plan(t, op, freeze)))
	require.Equal(t, []string{"hooks.acme.test: circuit open"}, blockers(plan(t, op, requeue)), "those of slow.test are skipped, and a line says so")
	require.Contains(t, lines(plan(t, op, requeue)), "endpoint suspended (operator) by anna")

	// The preview of a resume does not name the circuit that the resume closes, but names every
	// other cause.
	acme := get[string](w, "SELECT id::text FROM public.subscriptions WHERE callback_url = $1", acmeURL)
	resume := queue.Request{Action: queue.ActResume, Targets: []string{acme}, Reason: "r"}
	p := plan(t, op, resume)
	require.Empty(t, p.Refused)
	require.Empty(t, blockers(p))
	w.flag("webhook.worker.enabled", "false")
	require.Equal(t, []string{"webhook.worker.enabled is off"}, blockers(plan(t, op, resume)))
	w.exec("UPDATE public.subscriptions SET active = false WHERE callback_url = $1", acmeURL)
	require.ElementsMatch(t, []string{"slow.test: endpoint suspended: operator", "hooks.acme.test: subscription inactive", "webhook.worker.enabled is off"}, blockers(plan(t, op, freeze)))
	require.Equal(t, []string{"webhook.worker.enabled is off"}, blockers(plan(t, w.client("subscription_admin"), queue.Request{Action: queue.ActWebhookOn, Targets: []string{acme}, Reason: "r"}))[:1])
	require.Equal(t, []string{"webhook.worker.enabled is off"}, blockers(plan(t, w.client("subscription_admin"), queue.Request{
		Action: queue.ActWebhookAdd, Reason: "r", Args: map[string]string{"url": "https://new.test/a", "types": "order", "unsigned": "true"},
	})))

	w.flag("queue.dlq.replay_enabled", "false")
	require.Contains(t, blockers(plan(t, op, run)), "queue.dlq.replay_enabled is off")
	resolve := queue.Request{Action: queue.ActBulkPlan, Targets: hooks, Reason: "r", Args: map[string]string{"what": "resolve"}}
	require.Empty(t, blockers(plan(t, op, resolve)), "nothing is sent")
}

// The previews of actions that make jobs name what keeps them from running: a flag that is off, no job subscription, a silent executor, no handler.
func TestPreviewsSayWhatBlocksJobs(t *testing.T) {
	w := newWorld(t)
	jobs := w.dieJobs(jobDeadLetter{"kg.reindex", "kg", "HTTP_503", time.Minute}, jobDeadLetter{"kg.reindex", "kg", "TIMEOUT", 3 * time.Minute})
	op := w.client("dead_letter_operator", "queue_viewer")
	requeue := queue.Request{Action: queue.ActRequeue, Targets: jobs, Reason: "r"}
	freeze := queue.Request{Action: queue.ActBulkPlan, Targets: jobs, Reason: "r", Args: map[string]string{}}
	w.host("bulk_operation_runner")
	w.exec("UPDATE public.job_subscription SET enabled = false")
	blocked := func() []string {
		t.Helper()
		at, frozen := blockers(plan(t, op, requeue)), blockers(plan(t, op, freeze))
		require.Equal(t, at, frozen)
		return at
	}
	nobody := blocked()
	require.Len(t, nobody, 1)
	require.Regexp(t, `^job kg.reindex in kg: no (\w+ )?executor subscribes to it$`, nobody[0])

	executor := get[string](w, "SELECT min(executor) FROM public.job_dead_letter")
	w.exec(`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds,
		stale_threshold_seconds, registered_by) VALUES ('reindex_1', $1, '{}', now() - interval '1 hour', 60, 300, 'test')`, executor)
	admin := w.client("workflow_admin", "queue_viewer")
	subscribe := queue.Request{Action: queue.ActJobSubscribe, Targets: []string{"reindex_1"}, Reason: "r", Args: map[string]string{"kind": "kg.reindex", "domain": "kg"}}
	require.Equal(t, []string{"reindex_1 is silent"}, blockers(plan(t, admin, subscribe)), "that nobody subscribes is what it ends")
	require.Empty(t, apply(t, admin, plan(t, admin, subscribe)).Refused)
	require.Equal(t, []string{"job kg.reindex in kg: every subscribed executor is silent: reindex_1"}, blocked())
	w.exec("UPDATE public.queue_heartbeat SET last_beat_at = now()")
	require.Empty(t, blocked())
	w.flag("queue.job_substrate.enabled", "false")
	require.Equal(t, []string{"queue.job_substrate.enabled is off"}, blocked())
	require.Equal(t, []string{"queue.job_substrate.enabled is off"}, blockers(plan(t, admin, subscribe)))
	on := queue.Request{Action: queue.ActFlagSet, Targets: []string{"queue.job_substrate.enabled"}, Reason: "r", Args: map[string]string{"value": "true"}}
	require.NotContains(t, blockers(plan(t, admin, on)), "queue.job_substrate.enabled is off")
}

// The previews of resumed tick workers and of retried quarantined rows say that nobody runs the
// worker, or its flag is off.
func TestPreviewsSayWhatBlocksTickWorkers(t *testing.T) {
	w := newWorld(t)
	admin, op := w.client("workflow_admin", "queue_viewer"), w.client("dead_letter_operator", "queue_viewer")
	w.flag("queue.tick.webhook_router.interval_seconds", "0")
	w.flag("webhook.worker.enabled", "false")
	resume := queue.Request{Action: queue.ActTickResume, Targets: []string{"webhook_router"}, Reason: "r"}
	require.Equal(t, []string{"webhook.worker.enabled is off", "no live host runs webhook_router"}, blockers(plan(t, admin, resume)))
	id := get[string](w, `INSERT INTO public.queue_quarantine (step, target, code, error, next_try_at, set_aside_at)
		VALUES ('webhook_route', '1/1', '22P02', 'e', now(), now()) RETURNING quarantine_id::text`)
	retry := queue.Request{Action: queue.ActQuarantineRetry, Targets: []string{id}, Reason: "r"}
	require.Equal(t, []string{"webhook.worker.enabled is off", "queue.tick.webhook_router.interval_seconds is 0", "no live host runs webhook_router"}, blockers(plan(t, op, retry)))
	w.flag("webhook.worker.enabled", "true")
	w.host("webhook_router")
	require.Empty(t, blockers(plan(t, admin, resume)))

	// The key of an alert is that of one row, also where a target begins with another one.
	get[int](w, `WITH q AS (INSERT INTO public.queue_quarantine (step, target, code, error, next_try_at, set_aside_at)
		SELECT 'stale_check', t, '22P02', 'e', now(), now() FROM unnest('{a,a:b}'::text[]) t RETURNING 1) SELECT count(*) FROM q`)
	for _, target := range []string{"a", "a:b"} {
		for _, name := range get[[]string](w, "SELECT ARRAY[alert_key, subject] FROM public.v_queue_alert WHERE subject = 'quarantine:stale_check:' || $1", target) {
			retry.Targets = []string{name}
			p := plan(t, op, retry)
			require.Equal(t, get[string](w, "SELECT quarantine_id::text FROM public.queue_quarantine WHERE target = $1", target), strings.Join(p.Request.Targets, " "), name)
		}
	}
	retry.Targets = []string{"quarantine:stale_check:c"}
	require.Equal(t, "no such row is in quarantine: see qtop quarantine", plan(t, op, retry).Refused)
}

// Each step that can put rows into quarantine has the tick workers whose functions run it. The steps
// and the workers are read from the functions of the schema.
func TestStepsHaveWorkers(t *testing.T) {
	w := newWorld(t)
	source := map[string]string{}
	for _, row := range get[[]string](w, `SELECT array_agg(p.proname || E'\n' || p.prosrc) FROM pg_catalog.pg_proc p
		WHERE p.pronamespace = 'public'::regnamespace AND p.proname LIKE 'fn\_%'`) {
		name, body, _ := strings.Cut(row, "\n")
		source[name] = body
	}
	// steps returns the steps that a function runs: named in the call, or in the list of a loop.
	direct, looped := regexp.MustCompile(`fn_queue_step(?:_rest|_part|_failed)?\('([a-z_]+)'::text`), regexp.MustCompile(`fn_queue_step\(v_step\b`)
	listed := regexp.MustCompile(`['{,]((?:bulk|webhook_|sweep_)[a-z_]*)['},]`)
	steps := func(name string) (out []string) {
		for _, m := range direct.FindAllStringSubmatch(source[name], -1) {
			out = append(out, m[1])
		}
		if looped.MatchString(source[name]) {
			for _, m := range listed.FindAllStringSubmatch(strings.ReplaceAll(source[name], ",", ",,"), -1) {
				out = append(out, m[1])
			}
		}
		return out
	}
	called := regexp.MustCompile(`public\.(fn_[a-z0-9_]+)\(`)
	want := map[string][]string{}
	for _, row := range get[[]string](w, "SELECT array_agg(t.worker_name || ' ' || t.function ORDER BY t.worker_name) FROM public.queue_tick_worker t") {
		worker, first, _ := strings.Cut(row, " ")
		seen := map[string]bool{}
		for todo := []string{first}; len(todo) > 0; {
			name := todo[0]
			todo = todo[1:]
			if seen[name] || strings.HasPrefix(name, "fn_queue_step") {
				continue
			}
			seen[name] = true
			for _, step := range steps(name) {
				if !slices.Contains(want[step], worker) {
					want[step] = append(want[step], worker)
				}
			}
			for _, m := range called.FindAllStringSubmatch(source[name], -1) {
				todo = append(todo, m[1])
			}
		}
	}
	require.Greater(t, len(want), 25)
	for name := range source {
		step, ok := strings.CutPrefix(name, "fn_step_")
		require.True(t, !ok || strings.HasSuffix(step, "_targets") || len(want[step]) > 0, "%s: no tick worker runs this step", name)
	}
	require.Equal(t, want, actions.StepWorkers(), "the list is in StepWorkers (pgclient/actions/blocked_work.go)")
}
