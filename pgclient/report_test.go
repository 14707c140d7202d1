package pgclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

func (w *world) sample(minutesAgo int, metric, labels string, value float64) {
	w.t.Helper()
	w.exec(`INSERT INTO public.queue_metric_sample (at, metric, labels, value) VALUES (date_trunc('minute', now()) - make_interval(mins => $1), $2, $3, $4)`,
		minutesAgo, metric, labels, value)
}

func report(t *testing.T, w *world, back time.Duration) queue.Report {
	t.Helper()
	r, err := w.client("queue_viewer").Report(context.Background(), time.Now().Add(-back), time.Time{})
	require.NoError(t, err)
	return r
}

// The report finds silences in the samples, the acknowledgements and the open alerts,
// including silences that are over.
func TestReportSilences(t *testing.T) {
	w := newWorld(t)
	w.silent("lasts", 1200)
	w.silent("back", 1200)
	w.silent("sampled", 10)
	w.silent("before", 10)
	op := w.client("dead_letter_operator", "workflow_admin", "queue_viewer")
	ack := queue.Request{Action: queue.ActAck, Targets: []string{"back"}, Args: map[string]string{"comment": "mine", "for": "1h"}}
	require.EqualValues(t, 1, apply(t, op, plan(t, op, ack)).Done)
	w.exec("SELECT public.fn_queue_heartbeat_write('back', '{}', 'back')")
	for m := 40; m >= 30; m-- {
		w.sample(m, "silent_age_seconds", `{"executor": "sampled", "alert": "silence:sampled:2026-01-01T00:00:00.000000Z"}`, float64(900-m))
		w.sample(m+100, "silent_age_seconds", `{"executor": "before", "alert": "silence:before:2026-01-01T00:00:00.000000Z"}`, 900)
	}
	r := report(t, w, time.Hour)
	told := map[string]queue.Silence{}
	for _, s := range r.Silences {
		told[s.Executor.String()] = s
	}
	require.Len(t, told, 3)
	require.Equal(t, queue.SilenceLasts, told["lasts"].Ended)
	require.Nil(t, told["lasts"].EndedAt)
	require.InDelta(t, 1200, told["lasts"].WorstSeconds, 60)
	require.Empty(t, told["lasts"].Acks)
	require.Equal(t, queue.SilenceBeat, told["back"].Ended)
	require.WithinDuration(t, time.Now(), *told["back"].EndedAt, time.Minute)
	require.Len(t, told["back"].Acks, 1)
	require.Equal(t, "ann mine beat_returned", told["back"].Acks[0].AckedBy.String()+" "+told["back"].Acks[0].Comment.String()+" "+told["back"].Acks[0].ClearedReason.String())
	require.Equal(t, queue.SilenceSampled, told["sampled"].Ended)
	require.WithinDuration(t, time.Now().Add(-30*time.Minute), *told["sampled"].EndedAt, 2*time.Minute)
	require.EqualValues(t, 870, told["sampled"].WorstSeconds)
	require.Equal(t, "2026-01-01T00:00:00Z", told["sampled"].LastBeatAt.Format(time.RFC3339))
	require.EqualValues(t, 60, told["sampled"].CadenceSeconds)
}

// The points, extremes and last value of a curve are those of the samples. A queue lane without a
// sample in a minute in which other lanes have one was empty then.
func TestReportCurves(t *testing.T) {
	w := newWorld(t)
	for m := 50; m >= 1; m-- {
		if m >= 20 && m < 25 {
			continue // no samples in this minute
		}
		w.sample(m, "hosts_alive", "{}", 2)
		w.sample(m, "picture_ms", "{}", float64(m))
		if m >= 30 && m < 40 {
			w.sample(m, "waiting", `{"queue": "job kg.reindex", "domain": "kg"}`, float64(100+m))
		}
	}
	for q := range 14 {
		w.sample(45, "oldest_age_seconds", `{"queue": "job k`+string(rune('a'+q))+`", "domain": "kg"}`, float64(q))
	}
	r := report(t, w, 55*time.Minute)
	require.EqualValues(t, 60, r.CurveStep)
	curves := map[string]queue.Curve{}
	n := map[string]int{}
	for _, c := range r.Curves {
		n[c.Metric]++
		curves[c.Metric] = c
	}
	require.Equal(t, map[string]int{"hosts_alive": 1, "picture_ms": 1, "waiting": 1, "oldest_age_seconds": 10}, n)
	require.Equal(t, 4, r.More["curves"], "the ten that went highest")
	c := curves["waiting"]
	require.Equal(t, "job kg.reindex in kg", c.Name.String())
	require.Equal(t, []float64{0, 139, 0}, []float64{c.Min, c.Max, c.Last})
	known, zero := 0, 0
	for _, p := range c.Points {
		if p != nil {
			known++
			if *p == 0 {
				zero++
			}
		}
	}
	require.Equal(t, []int{45, 35}, []int{known, zero})
	c = curves["picture_ms"]
	require.Equal(t, []float64{1, 50, 1}, []float64{c.Min, c.Max, c.Last})
	known = 0
	for _, p := range c.Points {
		if p != nil {
			known++
		}
	}
	require.Equal(t, 45, known)

	// A longer span has fewer points; each shows the highest sample of its time.
	r = report(t, w, 10*time.Hour)
	require.EqualValues(t, 600, r.CurveStep)
	for _, c := range r.Curves {
		require.LessOrEqual(t, len(c.Points), 61)
		if c.Metric == "picture_ms" {
			require.Equal(t, []float64{1, 50, 1}, []float64{c.Min, c.Max, c.Last})
		}
	}
}

// The report lists what died in the span, and what became of it, and nothing else that died.
func TestReportDeadLetters(t *testing.T) {
	w := newWorld(t)
	hooks := w.die(
		deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", 10 * time.Minute}, deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", 11 * time.Minute},
		deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", 12 * time.Minute}, deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", 3 * time.Hour},
		deadLetter{"bill", "https://slow.test/a", "TIMEOUT", 13 * time.Minute})
	jobs := w.dieJobs(jobDeadLetter{"kg.reindex", "kg", "HANDLER_ERROR", time.Minute}, jobDeadLetter{"kg.reindex", "kg", "HANDLER_ERROR", 2 * time.Minute})
	events := w.dieEvents("made", "made", "made", "made")
	op := w.client("dead_letter_operator", "queue_viewer")
	require.EqualValues(t, 4, apply(t, op, plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: []string{hooks[0], jobs[0], events[0], events[1]}, Reason: "r"})).Done)
	require.EqualValues(t, 2, apply(t, op, plan(t, op, queue.Request{Action: queue.ActResolve, Targets: []string{hooks[1], events[2]}, Reason: "r"})).Done)
	w.exec(`SELECT public.fn_saga_orchestrator_run();
		SELECT public.fn_webhook_job_report(jsonb_build_array(jsonb_build_object('job_id', job_id, 'lease_token', lease_token, 'delivered', true, 'status', 204)))
		FROM public.fn_webhook_job_claim('test', 1);
		SELECT public.fn_saga_orchestrator_run()`)

	r := report(t, w, time.Hour)
	require.False(t, r.DeadBound)
	type counts struct{ arose, open, requeued, delivered, closed int64 }
	got := map[string]counts{}
	for _, d := range r.Dead {
		delivered := int64(-1)
		if d.Delivered != nil {
			delivered = *d.Delivered
		}
		got[d.Source+" "+d.Code.String()+" "+d.Endpoint.String()+" "+d.Domain.String()] = counts{d.Arose, d.Open, d.Requeued, delivered, d.Closed}
	}
	require.Equal(t, map[string]counts{
		"webhook HTTP_503 hooks.acme.test webhook": {3, 1, 1, 1, 1},
		"webhook TIMEOUT slow.test webhook":        {1, 1, 0, 0, 0},
		"job HANDLER_ERROR kg.reindex kg":          {2, 1, 1, -1, 0},
		"event ROUTE_22P02 made iu":                {4, 1, 2, -1, 1},
	}, got)
}

// Long lists are cut and marked as cut; the rest of the report is complete.
func TestReportIsBounded(t *testing.T) {
	w := newWorld(t)
	w.exec("SELECT public.fn_queue_mark('m' || i, 'ann') FROM generate_series(1, 130) i")
	w.exec("SELECT public.fn_dot_config_set('webhook.max_attempts', (10 + i)::text, 'ann', 'r') FROM generate_series(1, 450) i")
	r := report(t, w, time.Hour)
	require.Len(t, r.Marks, 100)
	require.Equal(t, "m1", r.Marks[0].Label.String(), "in order of time")
	require.Len(t, r.Actions, 500)
	require.Len(t, r.Flags, 100)
	require.Equal(t, map[string]int{"marks": 30, "actions": 80, "flags": 350}, r.More)
	require.Equal(t, []string{"10", "11"}, []string{r.Flags[0].Before.String(), r.Flags[0].After.String()})
	for _, e := range r.Actions {
		require.False(t, e.At.Before(r.Since) || !e.At.Before(r.Until))
	}
}

func TestReportNeeds(t *testing.T) {
	w := newWorld(t)
	c := w.client("queue_viewer")
	now := time.Now()
	for _, span := range [][2]time.Time{{now.Add(time.Hour), {}}, {now.Add(-time.Hour), now.Add(-2 * time.Hour)}, {now.Add(-time.Hour), now.Add(-time.Hour)}} {
		_, err := c.Report(context.Background(), span[0], span[1])
		kind(t, queue.KindUsage, err)
	}
	for _, roles := range [][]string{{"dot_executor"}, {}} {
		_, err := w.client(roles...).Report(context.Background(), now.Add(-time.Hour), time.Time{})
		kind(t, queue.KindPermission, err)
	}
	r, err := c.Report(context.Background(), now.Add(-time.Hour), now.Add(48*time.Hour))
	require.NoError(t, err)
	require.False(t, r.Until.After(r.AsOf), "it does not tell the future")
}

// The report has the circuits that opened and the endpoints that were suspended, who did it and how
// it ended: from stored snapshots, from the audit, and as it is now.
func TestReportSuspensions(t *testing.T) {
	w := newWorld(t)
	w.die(deadLetter{"order", acmeURL, "HTTP_503", time.Minute}, deadLetter{"invoice", slowURL, "TIMEOUT", time.Minute})
	sub := func(url string) string {
		return get[string](w, "SELECT id::text FROM public.subscriptions WHERE callback_url = $1", url)
	}
	acme, slow := sub(acmeURL), sub(slowURL)
	for m := 40; m >= 30; m-- { // a circuit that opened and closed
		w.exec(`INSERT INTO public.queue_past_picture (taken_at, took_ms, body) SELECT t, 1, json_build_object('suspended', json_build_array(json_build_object('subscription_id', $2::bigint,
			'endpoint', 'slow.test', 'reason', 'circuit', 'since', date_trunc('minute', now()) - interval '41 minutes', 'by', 'webhook_worker')))
			FROM (SELECT date_trunc('minute', now()) - make_interval(mins => $1) AS t) x`, m, slow)
	}
	op := w.client("dead_letter_operator", "queue_viewer")
	suspend := queue.Request{Action: queue.ActSuspend, Targets: []string{acme}, Reason: "it is deploying", Args: map[string]string{}}
	require.EqualValues(t, 1, apply(t, op, plan(t, op, suspend)).Done)
	resume := queue.Request{Action: queue.ActResume, Targets: []string{acme}, Reason: "deployed", Args: map[string]string{}}
	require.EqualValues(t, 1, apply(t, op, plan(t, op, resume)).Done)
	w.shut(slowURL, "circuit")
	w.exec("UPDATE public.webhook_endpoint_suspensions SET note = '10 failures in a row'")

	r := report(t, w, time.Hour)
	require.Len(t, r.Suspensions, 3)
	closed, suspended, open := r.Suspensions[0], r.Suspensions[1], r.Suspensions[2]
	require.Equal(t, "circuit slow.test webhook_worker last_seen", closed.Reason+" "+closed.Endpoint.String()+" "+closed.By.String()+" "+closed.Ended)
	require.WithinDuration(t, time.Now().Add(-41*time.Minute), closed.Since, 2*time.Minute)
	require.WithinDuration(t, time.Now().Add(-30*time.Minute), *closed.EndedAt, 2*time.Minute)
	require.Equal(t, "operator hooks.acme.test ann it is deploying resumed ann", suspended.Reason+" "+suspended.Endpoint.String()+" "+suspended.By.String()+" "+
		suspended.Note.String()+" "+suspended.Ended+" "+suspended.EndedBy.String())
	require.Equal(t, "circuit slow.test anna 10 failures in a row ", open.Reason+" "+open.Endpoint.String()+" "+open.By.String()+" "+open.Note.String()+" "+open.Ended)
	require.Nil(t, open.EndedAt)
}
