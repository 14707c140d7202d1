package viewstest

// Endpoints in every state, the leases on their jobs, and the reasons why one of them waits.

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Endpoints returns the rows of pane 7, endpoints with problems first.
func Endpoints() []queue.Endpoint {
	ms := func(v float64) *float64 { return &v }
	acme := queue.Endpoint{
		ID: 5, EventType: t("order.created"), URL: t("https://hooks.acme.example/in"), Endpoint: t("hooks.acme.example"), Gate: "suspended",
		Waiting: 4812, OldestAt: ptr(ago(192 * time.Minute)), AgeSeconds: ptr(int64(11_520)), DeadOpen: 4640, Pending: 12, InProgress: 3, PendingRetry: 4797, Completed: 120_331, DeadLettered: 4701,
		NextAt: ptr(ago(192 * time.Minute)), SuspendedBy: t("webhook_worker"), Reason: t("circuit"), Since: ptr(ago(20 * time.Second)), Until: ptr(ago(-10 * time.Second)),
		FailuresInRow: 51, LastSuccessAt: ptr(ago(195 * time.Minute)), LastFailureAt: ptr(ago(21 * time.Second)), LastFailure: t("HTTP_503"), Recent: 50, P50MS: ms(31), P95MS: ms(88),
	}
	gone := queue.Endpoint{
		ID: 9, EventType: t("order.created"), URL: t("https://old.example:8443/hook?•••"), Endpoint: t("old.example:8443"), Gate: "suspended", Waiting: 3,
		PendingRetry: 3, SuspendedBy: t("webhook_worker"), Reason: t("410"), Since: ptr(ago(26 * time.Hour)), LastFailureAt: ptr(ago(26 * time.Hour)), LastFailure: t("HTTP_410"),
		FailuresInRow: 1, Recent: 4, RecentOK: 3, P50MS: ms(12), P95MS: ms(19), Unsigned: true, LastSuccessAt: ptr(ago(27 * time.Hour)),
	}
	maintenance := queue.Endpoint{
		ID: 11, EventType: t("invoice.paid"), URL: t("https://api.slow.example/hooks/billing"), Endpoint: t("api.slow.example"), Gate: "suspended", Waiting: 240, Pending: 240,
		OldestAt: ptr(ago(9 * time.Minute)), AgeSeconds: ptr(int64(540)), SuspendedBy: t("ben"), Reason: t("operator"), Note: t("receiver is being repaired"), Since: ptr(ago(10 * time.Minute)), Until: ptr(ago(-20 * time.Minute)),
		Recent: 50, RecentOK: 50, P50MS: ms(1240), P95MS: ms(2890), Completed: 44_010, LastSuccessAt: ptr(ago(10 * time.Minute)), MaxAttempts: ptr(8), RateLimit: ms(5),
	}
	slow := maintenance
	slow.ID, slow.EventType, slow.Gate, slow.Reason, slow.SuspendedBy, slow.Since, slow.Until = 12, t("invoice.sent"), "open", queue.Text{}, queue.Text{}, nil, nil
	slow.Waiting, slow.Pending, slow.InProgress, slow.PendingRetry, slow.Leased, slow.Expired, slow.AgeSeconds, slow.OldestAt = 31, 20, 8, 3, 8, 1, ptr(int64(4)), ptr(ago(4*time.Second))
	slow.RecentOK, slow.FailuresInRow, slow.LastFailureAt, slow.LastFailure = 43, 0, ptr(ago(time.Minute)), t("TIMEOUT")
	well := queue.Endpoint{
		ID: 2, EventType: t("user.signed_up"), URL: t("https://hooks.partner.example/v2"), Endpoint: t("hooks.partner.example"), Gate: "open", Completed: 2_400_112,
		Leased: 2, InProgress: 2, Waiting: 2, Recent: 50, RecentOK: 50, P50MS: ms(14), P95MS: ms(40), LastSuccessAt: ptr(ago(time.Second)),
	}
	well.SlowStart = ms(80)
	off := queue.Endpoint{ID: 30, EventType: t("user.signed_up"), URL: t("https://new.example/x"), Endpoint: t("new.example"), Gate: "unverified"}
	return []queue.Endpoint{acme, gone, maintenance, slow, well, off}
}

// WebhookLeases returns leases on webhook jobs; the first lease has expired.
func WebhookLeases() []queue.WebhookLease {
	l := func(job, sub int64, host, worker string, started, until time.Duration, resets int) queue.WebhookLease {
		return queue.WebhookLease{JobID: job, SagaID: job - 1000, SubscriptionID: sub, Endpoint: t(host), Worker: t(worker), AttemptNo: 2, StartedAt: ago(started), Until: ago(until), Expired: until > 0, Resets: resets}
	}
	return []queue.WebhookLease{
		l(88001, 12, "api.slow.example", "bastion-1/5b1f77aa", 4*time.Minute, 3*time.Minute, 1),
		l(88120, 12, "api.slow.example", "bastion-2/0c11d2e3", 2*time.Second, -58*time.Second, 0),
		l(88121, 2, "hooks.partner.example", "bastion-2/0c11d2e3", 0, -60*time.Second, 0),
	}
}

// EndpointPage returns the details of an endpoint whose gate is open.
func EndpointPage() queue.EndpointDetail {
	attempts := Detail().Attempts
	w := Why()
	return queue.EndpointDetail{
		Endpoint: Endpoints()[0], Leases: []queue.WebhookLease{}, Attempts: attempts, Why: &w,
		Retries: []queue.RetrySlot{
			{From: -1, N: 12}, {From: 0, To: 60, N: 310}, {From: 60, To: 300, N: 1200}, {From: 300, To: 900, N: 2400}, {From: 900, To: 1800, N: 880}, {From: 1800, To: 3600, N: 10_000, Bound: true}, {From: 3600},
		},
	}
}

// Why returns the chain of reasons for an endpoint whose circuit is open.
func Why() queue.Why {
	link := func(name, state, text, detail, keys, do string) queue.WhyLink {
		return queue.WhyLink{Link: name, State: state, Text: t(text), Detail: t(detail), Keys: keys, Do: t(do)}
	}
	return queue.Why{
		Queue: t("webhook hooks.acme.example"), Source: "webhook", Waiting: 4812, OldestAt: ptr(ago(192 * time.Minute)), AgeSeconds: 11_520, Why: t("circuit open"),
		Links: []queue.WhyLink{
			link("flag", "clear", "webhook.worker.enabled is on", "", "", ""),
			link("schedule", "clear", "queue.tick.saga_orchestrator.interval_seconds is 5", "", "", ""),
			link("subscription", "clear", "subscribed", "", "", ""),
			link("suspension", "slows", "1 of 2 subscriptions are suspended", "5: circuit by webhook_worker since 2026-11-20 00:14:00Z", "7 D", "qtop endpoint resume 5 --reason R"),
			link("circuit", "blocks", "circuit open", "5: circuit by webhook_worker since 2026-11-20 00:14:00Z until 2026-11-20 00:14:30Z", "7 D", "qtop endpoint resume 5 --reason R"),
			link("parallel", "clear", "0 in flight", "each host sends delivery.per_endpoint at once", "", ""),
			link("host", "clear", "webhook_worker runs", "bastion-1, bastion-2", "", ""),
			link("host", "blocks", "no live host runs saga_orchestrator", "", "gw S", "qtop worker --loops saga_orchestrator"),
		},
	}
}
