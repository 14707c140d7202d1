// Package viewstest holds snapshots for the tests of views and tui: of an incident (rich), of an
// empty database, and one in which every string is hostile.
package viewstest

// The rich snapshot: an outbound executor that has been silent for 95
// hours, a receiver that answers 503, and the consequences of both.

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Now returns the server time of every snapshot here.
func Now() time.Time { return time.Date(2026, 11, 21, 0, 14, 7, 0, time.UTC) }

func t(s string) queue.Text { return queue.Clean(s) }

func ago(d time.Duration) time.Time { return Now().Add(-d) }

func ptr[T any](v T) *T { return &v }

// Rich returns the snapshot of an incident.
func Rich() queue.Snapshot {
	s := queue.Snapshot{
		TakenAt: Now(), TookMS: 3.1,
		Server: queue.Server{Version: t("16.4"), Database: t("queue")},
		Flags:  flags(), Health: health(), Alerts: alerts(), Executors: executors(),
		DeadGroups: groups(), Waiting: waiting(), Hosts: hosts(), Ticks: ticks(),
		Operations: Operations()[:3],
		Held: []queue.Held{{
			Worker: t("webhook_router"), Domain: t("webhook"), AgeSeconds: 2300, Pid: ptr(int64(4711)), Program: t("etl@bi"), User: t("etl"),
		}},
		Suspended: []queue.Suspension{{
			SubscriptionID: 12, Endpoint: t("hooks.gone.example"), Reason: t("410 Gone"), Since: ago(3 * time.Hour),
		}},
	}
	s.Marks = []queue.Mark{
		{At: ago(5 * time.Minute), Label: t("hotfix 4.2.1"), By: t("ben")}, {At: ago(29 * time.Minute), Label: t("rollback"), By: t("anna")},
		{At: ago(41 * time.Minute), Label: t("deploy 4.2"), By: t("ci")}, {At: ago(41*time.Minute + 5*time.Second), Label: t("migration 88"), By: t("ci")},
		{At: ago(70 * time.Minute), Label: t("too long ago"), By: t("ci")},
	}
	s.Actions = []queue.Recent{
		{AuditID: 94, At: ago(2 * time.Minute), By: t("anna"), Action: t("requeue"), Target: t("dead_letter 551"), Reason: t("receiver answers again"), Rows: 3},
		{AuditID: 90, At: ago(29 * time.Minute), By: t("ben"), Action: t("flag_set"), Target: t("webhook.worker.enabled"), Reason: t("receiver down"), Rows: 1},
	}
	s.Queues, s.JobTable, s.JobLeases, s.JobSubscriptions = lanes(), jobTable(), jobLeases(), subscriptions()
	s.Flow.HostsAlive, s.Flow.DeadOpen = 2, 4866
	for i := range 60 {
		d := int64(2400 + 300*(i%7) - i*20)
		x := int64(0)
		if i > 30 {
			d, x = max(0, d-int64(i-30)*120), int64((i-30)*(i-30)/10)
		}
		s.Flow.Delivered, s.Flow.Dead = append(s.Flow.Delivered, d), append(s.Flow.Dead, x)
		s.Flow.Jobs = append(s.Flow.Jobs, int64(60+i%9*11))
	}
	return s
}

// Empty returns the snapshot of a database that was migrated a minute ago.
func Empty() queue.Snapshot {
	f := flags()
	f[0] = queue.Flag{Key: t("webhook.worker.enabled"), Value: t("true"), Kind: "boolean", Description: t("webhook worker sends"), UpdatedAt: ago(time.Minute), UpdatedBy: t("migrate")}
	return queue.Snapshot{
		TakenAt: Now(), TookMS: 0.6, Server: queue.Server{Version: t("16.4"), Database: t("queue")},
		Flags: f[:1], JobTable: queue.JobTable{}, Flow: queue.Flow{Delivered: make([]int64, 60), Dead: make([]int64, 60)},
	}
}

func flags() []queue.Flag {
	back, past := Now().Add(21*time.Minute), ago(12*time.Minute)
	return []queue.Flag{
		{Key: t("webhook.worker.enabled"), Value: t("false"), Kind: "boolean", Description: t("webhook worker sends"), UpdatedAt: ago(9 * time.Minute), UpdatedBy: t("ben"), Reason: t("receiver down"), Off: true, RevertsAt: &back, RevertsTo: t("true")},
		{Key: t("event.wake_bridge.enabled"), Value: t("true"), Kind: "boolean", Description: t("producers send wake signals"), UpdatedAt: ago(200 * time.Hour), UpdatedBy: t("anna")},
		{Key: t("queue.tick.router.mode"), Value: t("shadw"), Kind: "mode", Description: t("active, shadow or off"), UpdatedAt: ago(30 * time.Hour), UpdatedBy: t("carl"), Reason: t("try it in shadow"), Invalid: true},
		{Key: t("queue.heartbeat.stale_threshold_seconds"), Value: t("300"), Kind: "integer", Description: t("silence after this many seconds is stale"), UpdatedAt: ago(900 * time.Hour), UpdatedBy: t("migrate")},
		{Key: t("webhook.max_attempts"), Value: t("3"), Kind: "integer", Description: t("attempts before a dead letter"), UpdatedAt: ago(31 * time.Minute), UpdatedBy: t("anna"), Reason: t("fail fast during the incident"), RevertsAt: &past, RevertsTo: t("8"), Overdue: true},
		{Key: t("webhook.batch_size"), Value: t("500"), Kind: "integer", Description: t("jobs that one claim takes at most"), UpdatedAt: ago(900 * time.Hour), UpdatedBy: t("migrate")},
		{Key: t("queue.scheduler.mode"), Value: t("hybrid"), Kind: "mode", Description: t("who ticks: external (worker hosts), pg_cron, or hybrid (both)"), UpdatedAt: ago(70 * time.Hour), UpdatedBy: t("anna"), Reason: t("try pg_cron")},
	}
}

func alerts() []queue.Alert {
	exp := Now().Add(9 * time.Minute)
	at := ago(21 * time.Minute)
	a := []queue.Alert{
		{Key: t("silence:iu_outbound_default"), Kind: "silence", Subject: t("iu_outbound_default"), Severity: "critical", Since: ptr(ago(95 * time.Hour)), AgeSeconds: 342000, Ratio: 5700, EventIDs: []string{"88121", "88240"}, State: "open", LastCleared: "expired"},
		{Key: t("silence:hermes_batch_1"), Kind: "silence", Subject: t("hermes_batch_1"), Severity: "warning", Since: ptr(ago(14 * time.Minute)), AgeSeconds: 840, Ratio: 7, State: "acked", AckedBy: t("ben"), AckedAt: &at, Comment: t("import runs until half past, then it is restarted"), AckExpiresAt: &exp},
		{Key: t("silence:codex_indexer"), Kind: "silence", Subject: t("codex_indexer"), Severity: "warning", Since: ptr(ago(6 * time.Minute)), AgeSeconds: 371, Ratio: 6.18, State: "open"},
		{Key: t("broadcast:kg:2026-11-19T22:44:00.000000Z"), Kind: "broadcast", Subject: t("broadcast:kg"), Severity: "warning", Since: ptr(ago(90 * time.Minute)), AgeSeconds: 5400, Ratio: 20, State: "open"},
	}
	return a
}

func executors() []queue.Executor {
	x := []queue.Executor{
		{ID: t("iu_outbound_default"), Kind: t("PG_worker"), Domains: []queue.Text{t("iu"), t("billing")}, State: "silent", LastBeatAt: ptr(ago(95 * time.Hour)), AgeSeconds: ptr(int64(342000)), CadenceSeconds: 60, ThresholdSeconds: 300, Ratio: 5700, Severity: "critical", OwnerRole: t("dot_executor"), RegisteredAt: ago(2000 * time.Hour), RegisteredBy: t("anna")},
		{ID: t("hermes_batch_1"), Kind: t("Hermes"), Domains: []queue.Text{t("import")}, State: "silent", LastBeatAt: ptr(ago(14 * time.Minute)), AgeSeconds: ptr(int64(840)), CadenceSeconds: 120, ThresholdSeconds: 300, Ratio: 7, Severity: "warning", AckedBy: t("ben"), AckExpiresAt: ptr(Now().Add(9 * time.Minute)), RegisteredAt: ago(400 * time.Hour), RegisteredBy: t("ben")},
		{ID: t("codex_indexer"), Kind: t("Codex"), Domains: []queue.Text{t("kg")}, State: "stuck", LastBeatAt: ptr(ago(12 * time.Second)), AgeSeconds: ptr(int64(12)), CadenceSeconds: 60, ThresholdSeconds: 300, Ratio: 0.2, InFlight: ptr(int64(3)), DoneTotal: ptr(int64(88123)), LastWorkAt: ptr(ago(40 * time.Minute)), InstanceID: t("gw/9f31c2aa"), RegisteredAt: ago(400 * time.Hour), RegisteredBy: t("ben")},
		{ID: t("external_reports"), Kind: t("external_worker"), State: "deregistered", LastBeatAt: ptr(ago(700 * time.Hour)), AgeSeconds: ptr(int64(2520000)), CadenceSeconds: 300, ThresholdSeconds: 900, Ratio: 8400, RegisteredAt: ago(3000 * time.Hour), RegisteredBy: t("carl"), DeregisteredAt: ptr(ago(650 * time.Hour)), DeregisteredBy: t("anna")},
	}
	for i := range 9 {
		state := []string{"working", "idle"}[i%2]
		x = append(x, queue.Executor{
			ID: t(fmt.Sprintf("agent_%02d", i+1)), Kind: t("Agent"), Domains: []queue.Text{t("kg"), t("iu"), t("import")}, State: state,
			LastBeatAt: ptr(ago(time.Duration(i*5) * time.Second)), AgeSeconds: ptr(int64(i * 5)), CadenceSeconds: 60, ThresholdSeconds: 300, Ratio: float64(i*5) / 60,
			InFlight: ptr(int64(i % 4)), DoneTotal: ptr(int64(120000 + i*7919)), LastWorkAt: ptr(ago(time.Minute)), RegisteredAt: ago(500 * time.Hour), RegisteredBy: t("deploy"),
		})
	}
	return x
}

func groups() []queue.DeadGroup {
	return []queue.DeadGroup{
		{Source: "webhook", Code: t("HTTP_503"), Endpoint: t("hooks.acme.example"), Domain: t("billing"), SubscriptionID: 7, Open: 4640, FirstAt: ago(72 * time.Minute), LastAt: ago(2 * time.Second), Trend: []int64{0, 2, 9, 40, 80, 200, 380, 500, 620, 700, 720, 690}},
		{Source: "webhook", Code: t("TIMEOUT"), Endpoint: t("api.slow.example"), Domain: t("iu"), SubscriptionID: 9, Open: 172, FirstAt: ago(34 * time.Minute), LastAt: ago(41 * time.Second), Trend: []int64{0, 0, 0, 0, 1, 9, 20, 22, 19, 31, 40, 30}},
		{Source: "job", Code: t("HANDLER_ERROR"), Endpoint: t("mail.send"), Domain: t("iu"), Open: 41, FirstAt: ago(3 * time.Hour), LastAt: ago(4 * time.Minute), Trend: []int64{1, 0, 4, 2, 0, 6, 9, 3, 2, 5, 4, 5}},
		{Source: "job", Code: t("LEASE_LOST_LIMIT"), Endpoint: t("kg.reindex"), Domain: t("kg"), Open: 4, FirstAt: ago(26 * time.Hour), LastAt: ago(2 * time.Hour), Trend: make([]int64, 12)},
		{Source: "webhook", Code: t("TLS_CERT_INVALID"), Endpoint: t("self-signed.partner-with-a-long-name.example"), Domain: t("iu"), SubscriptionID: 11, Open: 7, FirstAt: ago(28 * time.Hour), LastAt: ago(3 * time.Hour), Trend: make([]int64, 12)},
		{Source: "webhook", Code: t("CONN_REFUSED"), Endpoint: t("10.0.3.7:8443"), Domain: t("import"), SubscriptionID: 14, Open: 2, FirstAt: ago(5 * time.Hour), LastAt: ago(5 * time.Hour), Trend: make([]int64, 12)},
	}
}

func waiting() []queue.Waiting {
	return []queue.Waiting{
		{Queue: t("webhook hooks.acme.example"), Source: "webhook", Subject: t("hooks.acme.example"), Domain: t("billing"), OldestAt: ptr(ago(192 * time.Minute)), AgeSeconds: 11520, Waiting: 48120, InPerSecond: ptr(12.0), OutPerSecond: ptr(0.0), Why: t("webhook.worker.enabled is off (ben, 00:05)")},
		{Queue: t("event kg"), Source: "event", Subject: t("kg"), Domain: t("kg"), OldestAt: ptr(ago(38 * time.Minute)), AgeSeconds: 2280, Waiting: 41200, InPerSecond: ptr(18.4), Why: t("no live host runs iu_outbound_default")},
		{Queue: t("webhook api.slow.example"), Source: "webhook", Subject: t("api.slow.example"), Domain: t("iu"), OldestAt: ptr(ago(4 * time.Minute)), AgeSeconds: 244, Waiting: 120, InPerSecond: ptr(0.3), OutPerSecond: ptr(1.1), ClearsInSeconds: ptr(int64(150))},
		{Queue: t("job kg.reindex"), Source: "job", Subject: t("kg.reindex"), Domain: t("kg"), OldestAt: ptr(ago(47 * time.Minute)), AgeSeconds: 2820, Waiting: 1206, InPerSecond: ptr(0.4), OutPerSecond: ptr(0.0), Why: t("every subscribed executor is silent: codex_indexer")},
		{Queue: t("event iu"), Source: "event", Subject: t("iu"), Domain: t("iu"), OldestAt: ptr(ago(2 * time.Second)), AgeSeconds: 2, Waiting: 3, InPerSecond: ptr(40.2)},
	}
}

func hosts() []queue.Host {
	return []queue.Host{
		{ID: t("bastion-1"), Instance: "a1", StartedAt: ago(3 * time.Minute), LastSeenAt: ago(time.Second), AgeSeconds: 1, Alive: true, Version: t("0.2.0"), Loops: []queue.Text{t("tick"), t("router")}, InFlight: 4},
		{ID: t("worker-eu-2"), Instance: "b7", StartedAt: ago(90 * time.Hour), LastSeenAt: ago(3 * time.Second), AgeSeconds: 3, Alive: true, Version: t("0.2.0"), Loops: []queue.Text{t("router"), t("orchestrator"), t("sender")}, InFlight: 61},
		{ID: t("worker-eu-1"), Instance: "c2", StartedAt: ago(400 * time.Hour), LastSeenAt: ago(95 * time.Hour), AgeSeconds: 342000, Version: t("0.1.9"), Loops: []queue.Text{t("sender")}},
	}
}

func ticks() []queue.TickWorker {
	worker := func(name string, every int64, ran time.Duration, result string) queue.TickWorker {
		return queue.TickWorker{
			Name: t(name), IntervalSeconds: every, LastRunAt: ptr(ago(ran)), AgeSeconds: ptr(int64(ran / time.Second)), Mode: t("hybrid"), State: "ok",
			NextDueAt: ptr(ago(ran - time.Duration(every)*time.Second)), LastAttemptAt: ptr(ago(ran)), LastSource: t("external"),
			LastResult: json.RawMessage(result), DoneTotal: 120553, LastWorkAt: ptr(ago(ran + time.Minute)),
		}
	}
	route := worker("iu_outbound_default", 60, 2*time.Second, `{"events": 40, "attempts": 71, "dead_lettered": 0, "source": "pg_cron"}`)
	route.LastSource, route.FlagKey = t("pg_cron"), t("iu_core.route_worker_enabled")
	route.CronJob, route.CronSchedule, route.CronRunAs = t("queue_iu_outbound_default"), t("* * * * *"), t("queue_ops")
	stale := worker("stale_heartbeat_check", 120, 16*time.Minute, `{"checked": 0, "emitted": 0, "source": "external"}`)
	stale.Stale, stale.State, stale.LastWorkAt = true, "stale", nil
	stale.CronJob, stale.CronSchedule = t("queue_stale_heartbeat_check"), t("*/2 * * * *")
	paused := worker("lease_reset_cleaner", 0, 40*time.Minute, `{"reset": 3, "source": "external"}`)
	paused.State, paused.NextDueAt = "off", nil
	failed := worker("metrics_sampler", 60, 9*time.Minute, `{"error": "42501 permission denied for table queue_metric_sample", "source": "external"}`)
	failed.State, failed.LastAttemptAt, failed.NextDueAt = "failed", ptr(ago(11*time.Second)), ptr(ago(-49*time.Second))
	switched := worker("webhook_worker", 1, 3*time.Minute, `{"dispatched": 0, "monitoring": false, "source": "wake"}`)
	switched.State, switched.NextDueAt, switched.FlagKey, switched.LastSource = "off", nil, t("webhook.worker.enabled"), t("wake")
	never := queue.TickWorker{Name: t("retention_sweep"), IntervalSeconds: 3600, Mode: t("hybrid"), State: "stale", Stale: true}
	return []queue.TickWorker{failed, route, worker("saga_orchestrator", 5, 4*time.Second, `{"settled": 12, "source": "operator"}`), stale, paused, switched, never}
}

// Paused returns the interval flag of a tick worker that is paused for a time.
func Paused() queue.Flag {
	return queue.Flag{Key: t("queue.tick.lease_reset_cleaner.interval_seconds"), Value: t("0"), Kind: "integer", Description: t("how often the lease_reset_cleaner tick runs, in seconds; 0 = off"), UpdatedAt: ago(40 * time.Minute), UpdatedBy: t("ben"), Reason: t("leases looked at by hand"), Off: true, RevertsTo: t("30"), RevertsAt: ptr(ago(-20 * time.Minute))}
}

// Cron returns the pg_cron jobs of the queue.
func Cron() queue.Cron {
	job := func(name, worker, schedule string) queue.CronJob {
		return queue.CronJob{Name: t(name), Worker: t(worker), Schedule: t(schedule), RunAs: t("queue_ops"), InstalledAt: ptr(ago(72 * time.Hour)), InstalledBy: t("anna")}
	}
	well, failed, gone, hidden := job("queue_iu_outbound_default", "iu_outbound_default", "* * * * *"),
		job("queue_lease_reaper", "lease_reaper", "* * * * *"), job("queue_job_queue_default", "job_queue_default", "* * * * *"),
		job("queue_stale_heartbeat_check", "stale_heartbeat_check", "*/2 * * * *")
	well.Found, well.Active, well.LastStartAt, well.LastStatus, well.LastMessage = ptr(true), ptr(true), ptr(ago(2*time.Second)), t("succeeded"), t("SELECT 1")
	failed.Found, failed.Active, failed.LastStartAt, failed.LastStatus, failed.LastMessage = ptr(true), ptr(true), ptr(ago(2*time.Second)), t("failed"), t("connection failed")
	gone.Found = ptr(false)
	absent := queue.CronJob{Name: t("iu-notification-worker"), Worker: t("iu_notification_worker"), Schedule: t("*/2 * * * *"), Found: ptr(false)}
	return queue.Cron{Lacks: t("queue_anna may not use pg_cron: as a superuser, GRANT USAGE ON SCHEMA cron TO queue_anna"), Jobs: []queue.CronJob{absent, well, gone, failed, hidden}}
}

func health() []queue.HealthRow {
	rows := []queue.HealthRow{
		{Source: t("heartbeat"), Subject: t("iu_outbound_default"), Domain: t("iu"), LastSeenAt: ptr(ago(95 * time.Hour)), AgeSeconds: ptr(int64(342000)), StatusHint: t("stale")},
		{Source: t("cursor_held"), Subject: t("webhook_router"), Domain: t("webhook"), LastSeenAt: ptr(ago(38 * time.Minute)), AgeSeconds: ptr(int64(2300)), StatusHint: t("held")},
		{Source: t("cursor"), Subject: t("kg"), Domain: t("kg"), LastSeenAt: ptr(ago(2 * time.Second)), AgeSeconds: ptr(int64(2)), EventsSeen: ptr(int64(9214555)), StatusHint: t("held")},
		{Source: t("dead_letter_webhook"), Subject: t("HTTP_503"), Domain: t("billing"), LastSeenAt: ptr(ago(9 * time.Minute)), AgeSeconds: ptr(int64(540)), AttemptsWritten: ptr(int64(14120)), DeadLettered: ptr(int64(4640)), StatusHint: t("open")},
		{Source: t("backlog_webhook"), Subject: t("api.slow.example"), Domain: t("iu"), LastSeenAt: ptr(ago(4 * time.Second)), AgeSeconds: ptr(int64(4)), AttemptsWritten: ptr(int64(90331)), DeadLettered: ptr(int64(172)), StatusHint: t("fresh")},
		{Source: t("cursor"), Subject: t("iu"), Domain: t("iu"), LastSeenAt: ptr(ago(2 * time.Second)), AgeSeconds: ptr(int64(2)), EventsSeen: ptr(int64(120553)), StatusHint: t("fresh")},
		{Source: t("executor_subscription"), Subject: t("reports"), Domain: t("kg")},
	}
	for i := range 14 {
		rows = append(rows, queue.HealthRow{
			Source: t("heartbeat"), Subject: t(fmt.Sprintf("agent_%02d", i+1)), Domain: t("kg"), LastSeenAt: ptr(ago(time.Duration(i) * time.Second)),
			AgeSeconds: ptr(int64(i)), StatusHint: t("fresh"),
		})
	}
	return rows
}

// Audit returns the newest rows of the audit.
func Audit() []queue.AuditEntry {
	return []queue.AuditEntry{
		{ID: 981, At: ago(9 * time.Minute), Actor: t("ben"), DBRole: t("demo_operator"), ClientAddr: t("10.0.0.4"), Action: t("flag_set"), Target: t("webhook.worker.enabled"), Reason: t("receiver down"), Claimed: json.RawMessage(`{"loginuid":"1001","sudo_user":"ben","ssh_connection":"10.0.0.7 50122 10.0.0.4 22"}`), Before: json.RawMessage(`{"value":"true","reverts_at":null}`), After: json.RawMessage(`{"value":"false","reverts_at":"2026-11-21T00:35:00Z"}`), Outcome: t("done"), Changed: ptr(int64(1))},
		{ID: 980, At: ago(21 * time.Minute), Actor: t("ben"), DBRole: t("demo_operator"), Action: t("ack"), Target: t("silence:hermes_batch_1"), Reason: t("import runs until half past, then it is restarted"), After: json.RawMessage(`{"expires_at":"2026-11-21T00:23:07Z"}`), Outcome: t("done"), Changed: ptr(int64(1))},
		{ID: 977, At: ago(40 * time.Minute), Actor: t("anna"), DBRole: t("demo_operator"), Action: t("requeue"), Filter: t("code=TIMEOUT subscription=9"), FrozenCount: ptr(int64(120)), Reason: t("receiver says it is back"), Outcome: t("partial"), After: json.RawMessage(`{"requeued":118,"skipped":2}`), Changed: ptr(int64(118))},
		{ID: 976, At: ago(26 * time.Hour), Actor: t("carl"), DBRole: t("demo_viewer"), Action: t("requeue"), Target: t("5120"), Reason: t("try"), Outcome: t("refused"), After: json.RawMessage(`{"why":"demo_viewer lacks dead_letter_operator"}`), Changed: ptr(int64(0))},
	}
}

// AuditBatch returns the audit row of a batch that a host carried out for an operation.
func AuditBatch() queue.AuditEntry {
	return queue.AuditEntry{ID: 979, At: ago(31 * time.Minute), Actor: t("anna"), DBRole: t("demo_host"), Action: t("job_dead_letter_replay"), Target: t("job_dead_letter 0190a1b2-0000-7000-8000-000000000001"), FrozenCount: ptr(int64(413)), Changed: ptr(int64(10)), Reason: t("the handler is repaired"), Outcome: t("done"), OperationID: ptr(int64(12)), After: json.RawMessage(`{"replayed":10,"skipped":403}`)}
}

// DeadLetters returns one page of dead letters of the first group.
func DeadLetters(n int) []queue.DeadLetter {
	out := make([]queue.DeadLetter, n)
	for i := range out {
		out[i] = queue.DeadLetter{
			ID: fmt.Sprint(91000 - i), Source: "webhook", State: "open", Code: t("HTTP_503"), Endpoint: t("hooks.acme.example"), Domain: t("billing"),
			SubscriptionID: 7, EventID: int64(551200 - i), EventType: t([]string{"invoice.paid", "invoice.sent", "order.created"}[i%3]), SagaID: int64(300120 - i),
			Generation: i % 5 / 4, FailedAt: ago(time.Duration(2+i*7) * time.Second), AgeSeconds: int64(2 + i*7),
		}
	}
	return out
}

// Detail returns one dead letter with all its details.
func Detail() queue.DeadLetterDetail {
	d := queue.DeadLetterDetail{DeadLetter: DeadLetters(1)[0], CallbackURL: t("https://hooks.acme.example/in/billing?token=•••")}
	for i := range 3 {
		start := ago(time.Duration(190-i*60) * time.Second)
		end := start.Add(time.Duration(300+i*900) * time.Millisecond)
		d.Attempts = append(d.Attempts, queue.Attempt{
			JobID: int64(70 + i), No: i + 1, Status: "failed", StartedAt: &start, FinishedAt: &end, HTTPStatus: ptr(503), Code: t("HTTP_503"),
			Worker: t("worker-eu-2/b7"), Excerpt: t("<html><head><title>503 Service Temporarily Unavailable</title></head>"), Resets: i / 2,
			WebhookID: "0f6c1a52-6f0e-4c8e-9a83-0d1f6f2f7b10",
		})
	}
	a := &d.Attempts[1] // no answer
	a.HTTPStatus, a.Code, a.Excerpt = nil, t("CONNECTION_REFUSED"), queue.Text{}
	d.WebhookID = a.WebhookID
	d.Lineage = []queue.LineageStep{
		{Kind: "event", ID: t("551200"), Status: "routed", At: ptr(ago(200 * time.Second))},
		{Kind: "saga", ID: t("300021"), Status: "DeadLettered", At: ptr(ago(26 * time.Hour))},
		{Kind: "job", ID: t("44"), Status: "TIMEOUT", At: ptr(ago(25 * time.Hour)), By: t("worker-eu-1/a3")},
		{Kind: "dead_letter", ID: t("88012"), Status: "TIMEOUT", At: ptr(ago(25 * time.Hour))},
		{Kind: "requeue", ID: t("300120"), Status: "acme is back", At: ptr(ago(200 * time.Second)), By: t("ben")},
		{Kind: "saga", ID: t("300120"), Status: "DeadLettered", At: ptr(ago(190 * time.Second)), Generation: 1},
		{Kind: "job", ID: t("70"), Status: "HTTP_503", At: ptr(ago(189 * time.Second)), By: t("worker-eu-2/b7"), Generation: 1},
		{Kind: "dead_letter", ID: t("91000"), Status: "HTTP_503", At: ptr(ago(2 * time.Second)), Generation: 1, Current: true},
	}
	d.LineageLeft = 12
	d.Payload = t(`{"id":"evt_551200","type":"invoice.paid"}`)
	return d
}

// History returns the acknowledgements of one alert.
func History() []queue.AlertAck {
	return []queue.AlertAck{
		{AlertKey: t("silence:iu_outbound_default"), AckedBy: t("anna"), AckedAt: ago(5 * time.Hour), Comment: t("asked the platform team"), ExpiresAt: ptr(ago(3 * time.Hour)), ClearedAt: ptr(ago(3 * time.Hour)), ClearedReason: t("expired")},
		{AlertKey: t("silence:iu_outbound_default"), AckedBy: t("ben"), AckedAt: ago(50 * time.Hour), Comment: t("restarting the host"), ClearedAt: ptr(ago(49 * time.Hour)), ClearedReason: t("rose_to_critical")},
	}
}

// Session returns the session of a login with all rights.
func Session() queue.Session {
	return queue.Session{
		User: t("demo_operator"), Actor: "anna", Roles: []string{"dead_letter_operator", "workflow_admin", "queue_viewer"},
		Database: t("queue"), Address: t("db1:5432"), Version: t("16.4 (Debian 16.4-1)"), TLS: true, Environment: queue.ReadEnvironment("queue", "unset"), Rights: map[queue.ActionID]bool{}, Needs: map[queue.ActionID]string{},
	}
}

// Host returns the status of the worker host of this process.
func Host() queue.HostStatus {
	loops := []queue.LoopStatus{
		{Name: "tick", State: "running", What: "runs the tick workers that are due", Every: time.Second, LastTick: ago(time.Second), Done: 18231, PerSec: 1},
		{Name: "router", State: "running", What: "routes events to subscriptions", Every: 5 * time.Second, LastTick: ago(2 * time.Second), Done: 120553, PerSec: 40.1},
		{Name: "orchestrator", State: "running", What: "makes the next job of each saga", Every: 5 * time.Second, LastTick: ago(4 * time.Second), Done: 98112, PerSec: 12.4},
		{Name: "sender", State: "stopped", What: "delivers webhooks of executor iu_outbound_default", Every: 2 * time.Second},
		{Name: "job_executor", State: "failed", What: "runs handlers of this process for the jobs it may claim", Every: time.Second, Errors: 12, LastErr: t("executor bastion_jobs is not registered: qtop executor register bastion_jobs --owner-role jobs --kind external_worker, then 4 and E to let it claim")},
		{Name: "lease_reset", State: "failed", What: "takes back leases that ran out", Every: 30 * time.Second, LastTick: ago(9 * time.Minute), Done: 12, Errors: 3, LastErr: t("permission denied for function fn_lease_reset")},
	}
	return queue.HostStatus{
		ID: "bastion-1", Instance: "a1", Running: true, Loops: loops, InFlight: 4,
		Listener: queue.ListenerStatus{State: "listening", Since: ago(3 * time.Minute), Channels: 3, Heard: 4120, Resyncs: 1},
		Wakes: []queue.Wake{
			{At: ago(time.Second), Channel: t("qtop_wake_iu"), Layer: t("event"), Hint: t("iu.order.created"), Count: 12, LagMS: 2.3},
			{At: ago(2 * time.Second), Channel: t("qtop_wake_webhook"), Layer: t("saga"), Count: 3, LagMS: -1},
			{At: ago(6 * time.Second), Channel: t("qtop_wake_kg"), Layer: t("event"), Hint: t("kg.node.updated"), Count: 240, LagMS: 18.2},
		},
	}
}
