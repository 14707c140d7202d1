// Leases of webhook jobs: what a worker may do with its lease token and nobody may do without it,
// and how the cleaner returns expired leases.

package schema_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestWebhookStaleTokenChangesNothing(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 1)
	h.step()
	old := h.claim(1)[0]
	h.expireLeases()
	require.Equal(t, 1, num(h.call("public.fn_lease_reset_cleaner_run()"), "reset"))
	before := one[string](h, "SELECT j::text FROM public.webhook_delivery_jobs j")
	require.Equal(t, []string{"lease_lost"}, h.report(result(old, "")), "between two leases")
	fresh := h.claim(1)[0]
	require.Equal(t, old.WebhookID, fresh.WebhookID)
	require.Equal(t, []string{"lease_lost"}, h.report(result(old, "")), "under another's lease")
	for _, f := range []string{"renew", "release"} {
		require.Equal(t, "lease_lost", one[string](h, "SELECT outcome FROM public.fn_webhook_job_"+f+"($1, $2)",
			[]int64{old.Job}, []string{old.Token}), f)
	}
	require.NotEqual(t, before, one[string](h, "SELECT j::text FROM public.webhook_delivery_jobs j"))
	h.finish("", fresh)
	after := one[string](h, "SELECT j::text FROM public.webhook_delivery_jobs j")
	require.Equal(t, []string{"lease_lost"}, h.report(result(old, "TIMEOUT")), "after another's result")
	require.Equal(t, after, one[string](h, "SELECT j::text FROM public.webhook_delivery_jobs j"))
}

func TestWebhookRepeatedResult(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 2)
	h.step()
	leases := h.claim(2)
	ok, failed := result(leases[0], ""), result(leases[1], "HTTP_500")
	require.Equal(t, []string{"done", "done"}, h.report(ok, failed))
	require.Equal(t, []string{"repeated", "repeated"}, h.report(ok, failed))
	require.Equal(t, []string{"lease_lost"}, h.report(result(leases[0], "HTTP_500")), "another result is not a repeat")
	h.step()
	require.Equal(t, []string{"repeated", "repeated"}, h.report(ok, failed), "also after settling")
	require.Equal(t, 1, one[int](h, "SELECT sum(attempt_count) FROM public.webhook_delivery_sagas"))
	require.Equal(t, []string{"lease_lost"}, h.report(map[string]any{"job_id": 999, "lease_token": "x", "delivered": true, "status": 200}))
}

func TestWebhookReportRefusesNonsense(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 1)
	h.step()
	l := h.claim(1)[0]
	bad := map[string]func(map[string]any){
		"unknown code":        func(r map[string]any) { r["delivered"], r["code"], r["status"] = false, "OOPS", nil },
		"no code":             func(r map[string]any) { r["delivered"], r["status"] = false, 500 },
		"delivered with 302":  func(r map[string]any) { r["status"] = 302 },
		"delivered with code": func(r map[string]any) { r["code"] = "TIMEOUT" },
		"no token":            func(r map[string]any) { delete(r, "lease_token") },
		"text for an id":      func(r map[string]any) { r["job_id"] = "seven" },
		"status of four digits": func(r map[string]any) {
			r["delivered"], r["code"], r["status"] = false, "TIMEOUT", 5000
		},
	}
	for what, spoil := range bad {
		r := result(l, "")
		spoil(r)
		_, err := tryReport(h.work, r)
		refused(t, "22023", err, what)
	}
	_, err := tryReport(h.work, result(l, ""), result(l, ""))
	refused(t, "22023", err, "twice in one call")
	for _, raw := range []string{`{}`, `[1]`, `null`} {
		_, err := h.work.Exec(context.Background(), "SELECT public.fn_webhook_job_report($1)", raw)
		refused(t, "22023", err, raw)
	}
	r := result(l, "HTTP_599")
	r["excerpt"] = "a\x1b[2J\u202eb\u0085\n" + "üx"
	require.Equal(t, []string{"done"}, h.report(r))
	require.Equal(t, "a?[2J?b?\nüx", one[string](h, "SELECT response_excerpt FROM public.webhook_delivery_jobs"))
	require.Equal(t, 599, one[int](h, "SELECT response_status FROM public.webhook_delivery_jobs"))
}

func TestWebhookExcerptIsCut(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 1)
	h.step()
	r := result(h.claim(1)[0], "HTTP_500")
	long := make([]rune, 9000)
	for i := range long {
		long[i] = '汉'
	}
	r["excerpt"] = string(long)
	require.Equal(t, []string{"done"}, h.report(r))
	require.LessOrEqual(t, one[int](h, "SELECT octet_length(response_excerpt) FROM public.webhook_delivery_jobs"), 4096)
}

func TestWebhookRenewAndRelease(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 2)
	h.step()
	leases := h.claim(2)
	ids, tokens := []int64{leases[1].Job, leases[0].Job}, []string{leases[1].Token, leases[0].Token}
	h.expireLeases()
	require.Equal(t, "done", one[string](h, "SELECT max(outcome) FROM public.fn_webhook_job_renew($1, $2)", ids, tokens))
	require.Zero(t, num(h.call("public.fn_lease_reset_cleaner_run()"), "reset"), "a renewed lease is not reset")
	require.Equal(t, "done", one[string](h, "SELECT max(outcome) FROM public.fn_webhook_job_release($1, $2)", ids, tokens))
	require.Equal(t, 2, one[int](h, `SELECT count(*) FROM public.webhook_delivery_jobs j JOIN public.webhook_delivery_sagas s ON s.id = saga_id
		WHERE j.status = 'Pending' AND lease_resets = 0 AND s.attempt_count = 0`), "handed back untried")
	again := h.claim(2)
	require.Equal(t, leases[0].Job, again[0].Job)
	require.NotEqual(t, leases[0].Token, again[0].Token)
	_, err := h.work.Exec(context.Background(), "SELECT public.fn_webhook_job_renew($1, $2)", ids, tokens[:1])
	refused(t, "22023", err, "arrays of two lengths")
}

// A row that another session has locked delays the renewal of no other, and does not count as lost.
func TestWebhookRenewBesideALockedRow(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 3)
	h.step()
	leases := h.claim(3)
	ids, tokens := []int64{leases[0].Job, leases[1].Job, leases[2].Job}, []string{leases[0].Token, leases[1].Token, uuid.NewString()}
	tx, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM public.webhook_delivery_jobs WHERE id = $1 FOR UPDATE", ids[0])
	require.NoError(t, err)
	outcomes := func() string {
		return one[string](h, "SELECT string_agg(job_id || ' ' || outcome, ', ' ORDER BY job_id) FROM public.fn_webhook_job_renew($1, $2)", ids, tokens)
	}
	require.Equal(t, fmt.Sprintf("%d done, %d lease_lost", ids[1], ids[2]), outcomes())
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, fmt.Sprintf("%d done, %d done, %d lease_lost", ids[0], ids[1], ids[2]), outcomes())
}

// A job whose row another session has locked is not handed back now, and delays no other.
func TestWebhookReleaseBesideALockedRow(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 3)
	h.step()
	leases := h.claim(3)
	ids, tokens := []int64{leases[0].Job, leases[1].Job, leases[2].Job}, []string{leases[0].Token, leases[1].Token, uuid.NewString()}
	tx, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM public.webhook_delivery_jobs WHERE id = ANY ($1) FOR UPDATE", []int64{ids[0], ids[2]})
	require.NoError(t, err)
	outcomes := func() string {
		return one[string](h, "SELECT string_agg(job_id || ' ' || outcome, ', ' ORDER BY job_id) FROM public.fn_webhook_job_release($1, $2)", ids, tokens)
	}
	require.Equal(t, fmt.Sprintf("%d done, %d lease_lost", ids[1], ids[2]), outcomes())
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, fmt.Sprintf("%d done, %d lease_lost, %d lease_lost", ids[0], ids[1], ids[2]), outcomes())
}

// While another session changes the suspension that waits for a probe, the lease of the probe is
// renewed, and the probe is not handed back: neither waits.
func TestWebhookProbeBesideALockedSuspension(t *testing.T) {
	h := newHooks(t)
	h.flag("webhook.circuit_failures", "3")
	h.flag("webhook.max_attempts", "100")
	sub := h.subscribe("order")
	h.emit("order", 10)
	h.step()
	leases := h.claim(4)
	h.finish("", leases[0])
	h.finish("TIMEOUT", leases[1:]...)
	h.step()
	h.exec("UPDATE public.webhook_endpoint_suspensions SET until = now() - interval '1 second'")
	h.step()
	probes := h.claim(10)
	require.Len(t, probes, 1)
	probe := probes[0]
	ids, tokens := []int64{probe.Job}, []string{probe.Token}
	tx, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM public.webhook_endpoint_suspensions WHERE subscription_id = $1 FOR UPDATE", sub)
	require.NoError(t, err)
	outcome := func(f string) string {
		return one[string](h, "SELECT COALESCE(max(outcome), 'locked') FROM public.fn_webhook_job_"+f+"($1, $2)", ids, tokens)
	}
	require.Equal(t, "done", outcome("renew"))
	require.Equal(t, "locked", outcome("release"))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "done", outcome("renew"))
	require.True(t, one[bool](h, "SELECT x.probe_until = j.lease_until FROM public.webhook_endpoint_suspensions x, public.webhook_delivery_jobs j WHERE j.id = x.probe_job_id"))
	require.Equal(t, "done", outcome("release"))
	require.Equal(t, 1, one[int](h, "SELECT count(*) FROM public.webhook_endpoint_suspensions WHERE probe_job_id IS NULL"))
}

// A row that another session has locked fails a report soon, so that the host can record the other
// results.
func TestWebhookReportBesideALockedRow(t *testing.T) {
	h := newHooks(t)
	sub := h.subscribe("order")
	h.emit("order", 1)
	h.step()
	l := h.claim(1)[0]
	tx, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM public.webhook_endpoint_state WHERE subscription_id = $1 FOR UPDATE", sub)
	require.NoError(t, err)
	_, err = tryReport(h.work, result(l, ""))
	refused(t, "55P03", err, "the endpoint is locked")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, []string{"done"}, h.report(result(l, "")))
}

func TestWebhookManyCleanersResetOnce(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 500)
	h.step()
	for loss := 1; loss <= 3; loss++ {
		require.Len(t, h.claim(1000), 500)
		h.expireLeases()
		var wg sync.WaitGroup
		sums := make(chan [2]int, 8)
		for range 8 {
			wg.Go(func() {
				var reset, failed int
				for {
					got, err := tryCall(h.work, "public.fn_lease_reset_cleaner_run(70)")
					if err != nil || num(got, "reset")+num(got, "failed") == 0 {
						break
					}
					reset += num(got, "reset")
					failed += num(got, "failed")
				}
				sums <- [2]int{reset, failed}
			})
		}
		wg.Wait()
		close(sums)
		var reset, failed int
		for s := range sums {
			reset += s[0]
			failed += s[1]
		}
		if loss < 3 {
			require.Equal(t, []int{500, 0}, []int{reset, failed})
		} else {
			require.Equal(t, []int{0, 500}, []int{reset, failed})
		}
		require.Equal(t, []int{loss, loss}, []int{one[int](h, "SELECT min(lease_resets) FROM public.webhook_delivery_jobs"),
			one[int](h, "SELECT max(lease_resets) FROM public.webhook_delivery_jobs")})
	}
	require.Equal(t, 500, one[int](h, "SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Failed' AND error_code = 'LEASE_LOST_LIMIT'"))
	require.Equal(t, 500, num(h.call("public.fn_saga_orchestrator_run()"), "dead_lettered"), "whatever attempts are left")
}

func TestWebhookClaimOnlyWhileEnabled(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 1)
	h.step()
	h.flag("webhook.worker.enabled", "false")
	require.Empty(t, h.claim(1))
	h.flag("webhook.worker.enabled", "nonsense")
	require.Empty(t, h.claim(1))
	h.flag("webhook.worker.enabled", "true")
	h.flag("queue.tick.webhook_worker.interval_seconds", "0")
	require.Empty(t, h.claim(1), "paused")
	h.flag("queue.tick.webhook_worker.interval_seconds", "1")
	require.Len(t, h.claim(1), 1)
	for _, args := range []string{"'', 1", "'w', 0", "'w', 10001", "NULL, 1"} {
		_, err := h.work.Exec(context.Background(), "SELECT public.fn_webhook_job_claim("+args+")")
		refused(t, "22023", err, args)
	}
}

func TestWebhookConcurrentClaimsShareNothing(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.subscribe("order")
	h.exec("UPDATE public.subscriptions SET rate_limit_per_second = 100000 WHERE id = 1")
	h.emit("order", 500)
	h.step()
	h.step()
	var mu sync.Mutex
	seen := map[int64]int{}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for {
				got, err := tryClaim(h.work, 7)
				if err != nil {
					return
				}
				mu.Lock()
				for _, l := range got {
					seen[l.Job]++
				}
				enough := len(seen) == 1000
				mu.Unlock()
				if enough || (len(got) == 0 && t.Context().Err() != nil) {
					return
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, seen, 1000)
	for job, n := range seen {
		require.Equal(t, 1, n, "job %d", job)
	}
}
