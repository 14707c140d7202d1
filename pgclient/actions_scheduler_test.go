// The actions on tick workers and on the jobs of pg_cron: pause, resume, install, remove.

package pgclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

const reaper = "queue.tick.lease_reaper.interval_seconds"

func (w *world) interval() string {
	w.t.Helper()
	return get[string](w, "SELECT value FROM public.dot_config WHERE key = $1", reaper)
}

// A pause for a time and a permanent one: a resume sets the interval that applied before the pause.
func TestPauseAndResume(t *testing.T) {
	w := newWorld(t)
	admin := w.client("queue_viewer", "workflow_admin")
	ask := func(id queue.ActionID, args map[string]string) queue.Plan {
		t.Helper()
		return plan(t, admin, queue.Request{Action: id, Targets: []string{"lease_reaper"}, Args: args, Reason: "by hand"})
	}
	set := plan(t, admin, queue.Request{Action: queue.ActFlagSet, Targets: []string{reaper}, Args: map[string]string{"value": "45"}, Reason: "calmer"})
	require.EqualValues(t, 1, apply(t, admin, set).Done)

	p := ask(queue.ActTickPause, nil)
	require.Equal(t, "qtop scheduler pause lease_reaper --for 30m --reason 'by hand'", p.Command)
	require.Contains(t, lines(p), "to 45 automatically after 30m 00s")
	require.Equal(t, "45", w.interval(), "a plan changes nothing")
	require.EqualValues(t, 1, apply(t, admin, p).Done)
	require.Equal(t, "0", w.interval())
	require.Equal(t, "paused", ask(queue.ActTickPause, nil).Rule)
	off := false
	s, err := admin.Snapshot(context.Background(), 0)
	require.NoError(t, err)
	for _, f := range s.Flags {
		off = off || (f.Key.String() == reaper && f.Off && f.RevertsAt != nil)
	}
	require.True(t, off, "it stands under OFF on the first screen, with when it comes back")
	p = ask(queue.ActTickResume, nil)
	require.Equal(t, "qtop scheduler resume lease_reaper --reason 'by hand'", p.Command)
	require.EqualValues(t, 1, apply(t, admin, p).Done)
	require.Equal(t, "45", w.interval())
	require.Zero(t, get[int](w, "SELECT count(*) FROM public.dot_config_revert"), "and nothing is left to come back")
	require.Equal(t, "not_paused", ask(queue.ActTickResume, nil).Rule)

	// A permanent pause, then a resume; also after a second pause, whose audit row has 0 as the
	// former interval.
	require.EqualValues(t, 1, apply(t, admin, ask(queue.ActTickPause, map[string]string{"for": ""})).Done)
	zero := plan(t, admin, queue.Request{Action: queue.ActFlagSet, Targets: []string{reaper}, Args: map[string]string{"value": "0", "for": "1h"}, Reason: "longer"})
	require.EqualValues(t, 1, apply(t, admin, zero).Done)
	require.EqualValues(t, 1, apply(t, admin, ask(queue.ActTickResume, nil)).Done)
	require.Equal(t, "45", w.interval())

	// Two operators: the second one makes a plan before the first one pauses the tick worker.
	late := ask(queue.ActTickPause, nil)
	require.EqualValues(t, 1, apply(t, admin, ask(queue.ActTickPause, nil)).Done)
	require.Contains(t, apply(t, admin, late).Refused, "was changed to")

	// If the audit has no former interval above 0, a resume sets the default.
	w.exec("ALTER TABLE public.queue_operator_action DISABLE TRIGGER USER; DELETE FROM public.queue_operator_action; DELETE FROM public.dot_config_revert")
	require.EqualValues(t, 1, apply(t, admin, ask(queue.ActTickResume, nil)).Done)
	require.Equal(t, "60", w.interval())

	_, err = admin.Plan(context.Background(), queue.Request{Action: queue.ActTickPause, Targets: []string{"no_such"}, Reason: "r"})
	require.ErrorContains(t, err, "there is no tick worker no_such")
	_, err = admin.Plan(context.Background(), queue.Request{Action: queue.ActTickPause, Targets: []string{"lease_raper"}, Reason: "r"})
	require.EqualError(t, err, "there is no tick worker lease_raper: did you mean lease_reaper? qtop scheduler lists them")
	viewer := w.client("queue_viewer")
	pause := queue.Request{Action: queue.ActTickPause, Targets: []string{"lease_reaper"}, Reason: "r"}
	_, err = viewer.Plan(context.Background(), pause)
	require.Equal(t, queue.KindPermission, queue.KindOf(err))
	_, err = viewer.Apply(context.Background(), plan(t, admin, pause))
	require.Equal(t, queue.KindPermission, queue.KindOf(err))
}

// The preview of what lets hosts send webhooks again says how many they send at first.
func TestResumedSenderInPreview(t *testing.T) {
	w := newWorld(t)
	admin := w.client("queue_viewer", "workflow_admin")
	w.exec(`INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('e', 'https://r.example/in', true, true),
		('f', 'https://few.example/in', true, true)`)
	w.exec("INSERT INTO public.events (event_type, payload) SELECT CASE WHEN i <= 300 THEN 'e' ELSE 'f' END, '{}' FROM generate_series(1, 350) i")
	require.Eventually(t, func() bool { // the transaction of another test delays the router for a moment
		w.exec("SELECT public.fn_webhook_router_run()")
		return get[int](w, "SELECT count(*)::int FROM public.webhook_delivery_sagas") == 350
	}, 30*time.Second, 10*time.Millisecond)
	for _, worker := range []string{"webhook_worker", "saga_orchestrator"} {
		w.flag(queue.TickInterval(worker), "0")
		p := plan(t, admin, queue.Request{Action: queue.ActTickResume, Targets: []string{worker}, Reason: "r"})
		require.Contains(t, lines(p), "of 300 to r.example: 10/s at first", worker)
		require.Contains(t, lines(p), "up to 50 of 50 to few.example: no slow start, too few wait for one", worker)
		w.flag("webhook.slow_start.enabled", "false")
		p = plan(t, admin, queue.Request{Action: queue.ActTickResume, Targets: []string{worker}, Reason: "r"})
		require.Contains(t, lines(p), "up to 300 of 300 to r.example: no slow start, webhook.slow_start.enabled is off", worker)
		w.flag("webhook.slow_start.enabled", "true")
		w.flag(queue.TickInterval(worker), "5")
	}
	p := plan(t, admin, queue.Request{Action: queue.ActFlagSet, Targets: []string{queue.TickInterval("webhook_worker")}, Args: map[string]string{"value": "2"}, Reason: "r"})
	require.NotContains(t, lines(p), "first minute")
}

func TestCronPlan(t *testing.T) {
	w := newWorld(t)
	admin := w.client("queue_viewer", "workflow_admin")
	p := plan(t, admin, queue.Request{Action: queue.ActCronInstall, Reason: "try"})
	require.Equal(t, "no_pg_cron", p.Rule)
	require.Contains(t, p.Refused, "shared_preload_libraries")
	require.Equal(t, "qtop scheduler install --reason try", p.Command)
	require.Zero(t, get[int](w, "SELECT count(*) FROM public.queue_operator_action"), "a plan writes nothing")
	page, err := admin.List(context.Background(), queue.Query{Kind: queue.ListCron})
	require.NoError(t, err)
	require.Contains(t, queue.Of[*queue.Cron](page).Lacks.String(), "CREATE EXTENSION pg_cron")
	require.Len(t, queue.Of[*queue.Cron](page).Jobs, 6)
	for _, j := range queue.Of[*queue.Cron](page).Jobs {
		require.False(t, *j.Found, j.Name)
		require.NotEmpty(t, j.Schedule.String(), j.Name)
	}
	p = plan(t, admin, queue.Request{Action: queue.ActCronRemove, Reason: "tidy"})
	require.Zero(t, p.Count)
	res := apply(t, admin, p)
	require.Positive(t, res.AuditID)
	require.Len(t, res.Results, 6)

	// Hosts leave the six tick workers to pg_cron: without its jobs nobody runs them.
	const nobody = "queue.scheduler.mode is pg_cron: without these jobs nobody runs their tick workers"
	w.exec("UPDATE public.queue_cron_job SET run_as = 'ops', installed_by = 'ann', installed_at = now()")
	require.NotContains(t, lines(plan(t, admin, queue.Request{Action: queue.ActCronRemove, Reason: "tidy"})), nobody)
	w.exec("UPDATE public.dot_config SET value = 'pg_cron' WHERE key = 'queue.scheduler.mode'")
	require.Contains(t, lines(plan(t, admin, queue.Request{Action: queue.ActCronRemove, Reason: "tidy"})), nobody)
	w.exec("UPDATE public.queue_cron_job SET run_as = NULL, installed_by = NULL, installed_at = NULL")
	require.NotContains(t, lines(plan(t, admin, queue.Request{Action: queue.ActCronRemove, Reason: "tidy"})), nobody, "they are not installed")
}
