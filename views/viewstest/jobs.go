package viewstest

// The job queue of the rich snapshot: a queue lane whose executor is silent, one without a job
// subscription, one whose jobs fail, and healthy ones.

import (
	"fmt"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

func lanes() []queue.Lane {
	out := []queue.Lane{
		{Kind: t("kg.reindex"), Domain: t("kg"), Queued: 1200, RetryWaiting: 6, Scheduled: 4, Leased: 2, InProgress: 8, OldestAt: ptr(ago(47 * time.Minute)), AgeSeconds: ptr(int64(2820)), NewestAt: ptr(ago(2 * time.Second)), InPerSecond: 0.4, Succeeded: 210, Failed: 9, Why: t("every subscribed executor is silent: codex_indexer")},
		{Kind: t("report.render"), Domain: t("billing"), Queued: 31, OldestAt: ptr(ago(26 * time.Minute)), AgeSeconds: ptr(int64(1560)), NewestAt: ptr(ago(time.Minute)), InPerSecond: 0.02, Why: t("no executor subscribes to it")},
		{Kind: t("mail.send"), Domain: t("iu"), Queued: 120, RetryWaiting: 44, Scheduled: 51, Leased: 3, InProgress: 9, OldestAt: ptr(ago(95 * time.Second)), AgeSeconds: ptr(int64(95)), NewestAt: ptr(ago(time.Second)), InPerSecond: 3.1, OutPerSecond: 2.4, Succeeded: 8120, Failed: 310, Dead: 41, Cancelled: 2, Why: t("parallel limit reached: agent_01")},
		{Kind: t("import.rows.normalise.and.deduplicate"), Domain: t("import"), Queued: 48120, Leased: 40, InProgress: 60, OldestAt: ptr(ago(4 * time.Minute)), AgeSeconds: ptr(int64(244)), NewestAt: ptr(ago(time.Second)), InPerSecond: 40.2, OutPerSecond: 61.4, Succeeded: 204112, ClearsInSeconds: ptr(int64(2270))},
		{Kind: t("invoice.close"), Domain: t("billing"), Queued: 12, Scheduled: 12, NewestAt: ptr(ago(3 * time.Hour)), Why: t("all due later")},
		{Kind: t("thumb.make"), Domain: t("iu"), InProgress: 1, Succeeded: 77, InPerSecond: 0.02, OutPerSecond: 0.02},
		{Kind: t("thumb.make"), Domain: t("kg"), Succeeded: 5, Cancelled: 12},
	}
	return out
}

func jobTable() queue.JobTable {
	return queue.JobTable{
		LiveRows: 49412, DeadRows: 188230, LastVacuum: ptr(ago(44 * time.Minute)), Leases: 14, LeasesExpired: 2,
		OldestSnapshotSeconds: ptr(int64(2280)), OldestSnapshotPid: ptr(int64(4711)), OldestSnapshotProgram: t("etl@bi"),
	}
}

// jobID returns ids like those of jobs that were enqueued together: they differ in the middle.
func jobID(n int) string { return fmt.Sprintf("01a1ffab-7790-7000-8%03x-48907d178d60", n) }

// token returns a UUID of version 4, like the tokens that the database makes.
func token(n int) string { return fmt.Sprintf("%08x-1111-4222-8333-0123456789ab", 0x3f2a9100+n) }

func jobLeases() []queue.JobLease {
	return []queue.JobLease{
		{ID: token(900), Owner: t("codex_indexer"), Kind: t("kg.reindex"), Domain: t("kg"), Live: 8, ClaimedAt: ago(41 * time.Minute), Until: ago(36 * time.Minute), Expired: true},
		{ID: token(901), Owner: t("codex_indexer"), Kind: t("kg.reindex"), Domain: t("kg"), Live: 2, ClaimedAt: ago(40 * time.Minute), Until: ago(35 * time.Minute), Expired: true},
		{ID: token(902), Owner: t("agent_01"), Kind: t("mail.send"), Domain: t("iu"), Live: 1, ClaimedAt: ago(4 * time.Minute), Until: Now().Add(50 * time.Second)},
	}
}

func subscriptions() []queue.JobSubscription {
	sub := func(n int, executor, kind, domain string, floor, parallel, flight int64, enabled bool, notes string) queue.JobSubscription {
		return queue.JobSubscription{
			ID: jobID(800 + n), ExecutorID: t(executor), ExecutorKind: t("Agent"), JobKind: t(kind), Domain: t(domain), PriorityFloor: floor,
			MaxParallel: parallel, Enabled: enabled, Notes: t(notes), InFlight: flight, RegisteredBy: t("anna"), RegisteredAt: ago(300 * time.Hour),
		}
	}
	return []queue.JobSubscription{
		sub(1, "agent_01", "mail.send", "iu", 0, 12, 12, true, "twelve at once is what the relay takes"),
		sub(2, "agent_01", "thumb.make", "", 50, 4, 1, true, ""),
		sub(3, "agent_02", "", "import", 0, 100, 100, true, ""),
		sub(4, "agent_03", "report.render", "billing", 0, 2, 0, false, "off until the template is fixed"),
		sub(5, "codex_indexer", "kg.reindex", "kg", 0, 10, 10, true, ""),
	}
}

// Jobs returns one page of jobs of the queue lane kg.reindex.
func Jobs(n int) []queue.Job {
	out := make([]queue.Job, n)
	for i := range out {
		j := queue.Job{
			ID: jobID(i), Kind: t("kg.reindex"), Domain: t("kg"), Executor: t("Codex"), Status: "queued", Ready: true, Priority: int64(100 - i/10),
			ProcessAfter: ago(47*time.Minute - time.Duration(i)*10*time.Second), MaxAttempts: 5,
			Key: t(fmt.Sprintf("node-%d", 551200+i)),
		}
		j.EnqueuedAt = j.ProcessAfter
		j.AgeSeconds = int64(Now().Sub(j.ProcessAfter).Seconds())
		switch {
		case i < 3: // the lease expired 36 minutes ago
			j.Status, j.PickedAt, j.LeaseOwner, j.LeaseUntil, j.LeaseID = "in_progress", ptr(ago(41*time.Minute)), t("codex_indexer"), ptr(ago(36*time.Minute)), token(900)
		case i < 5:
			j.Status, j.PickedAt, j.LeaseOwner, j.LeaseUntil, j.LeaseID = "leased", ptr(ago(20*time.Second)), t("agent_01"), ptr(Now().Add(5*time.Minute)), token(903)
		case i%9 == 8:
			j.Status, j.Ready, j.Attempts, j.Code, j.LastError = "retry_waiting", false, 2, t("HANDLER_ERROR"), t("graph store answered 503: shard 7 is read-only while it is rebuilt")
			j.ProcessAfter = Now().Add(4 * time.Minute)
		case i%9 == 7:
			j.Ready, j.ProcessAfter = false, Now().Add(2*time.Hour)
		}
		out[i] = j
	}
	return out
}

// Job returns one job with all its details.
func Job() queue.JobDetail {
	j := Jobs(9)[8]
	return queue.JobDetail{
		Job: j, Actor: t("crawler"), SourceRef: t("event_outbox:9214555"), TargetRef: t("kg/node/551208"), CorrelationID: t("c-7714"), LostLeases: 1,
		Payload: t(`{"node":551208,"depth":2,"token":"•••","labels":["person","a label that is long enough to be wrapped where the screen is narrow, and to show that nothing is cut"],"weight":12345678901234567890.5}`),
	}
}

// JobDeadLetters returns one page of dead letters of jobs.
func JobDeadLetters(n int) []queue.DeadLetter {
	out := make([]queue.DeadLetter, n)
	for i := range out {
		out[i] = queue.DeadLetter{
			ID: queue.JobDeadLetterID(jobID(500 + i)), Source: "job", State: "open", Code: t("HANDLER_ERROR"), Endpoint: t("mail.send"), Domain: t("iu"),
			Generation: i % 4 / 3, FailedAt: ago(time.Duration(4+i*11) * time.Minute), AgeSeconds: int64(240 + i*660),
		}
	}
	return out
}

// JobDeadLetter returns one dead letter of a job with all its details; the job was replayed once
// before.
func JobDeadLetter() queue.DeadLetterDetail {
	return queue.DeadLetterDetail{
		DeadLetter: JobDeadLetters(1)[0], JobID: jobID(400), Tries: 5, Executor: t("Agent"), FirstFailedAt: ptr(ago(50 * time.Minute)),
		LastError: t("relay refused the recipient: 550 5.1.1 no such user\n  at send (mail.go:118)\n  at run (main.go:40)"),
		Lineage: []queue.LineageStep{
			{Kind: "job", ID: t(jobID(399)), Status: "dead_letter", At: ptr(ago(26 * time.Hour)), By: t("crawler")},
			{Kind: "dead_letter", ID: t(queue.JobDeadLetterID(jobID(499))), Status: "HANDLER_ERROR", At: ptr(ago(25 * time.Hour))},
			{Kind: "requeue", ID: t(jobID(400)), Status: "relay was down", At: ptr(ago(2 * time.Hour)), By: t("ben")},
			{Kind: "job", ID: t(jobID(400)), Status: "dead_letter", At: ptr(ago(2 * time.Hour)), By: t("ben"), Generation: 1},
			{Kind: "dead_letter", ID: t(queue.JobDeadLetterID(jobID(500))), Status: "HANDLER_ERROR", At: ptr(ago(4 * time.Minute)), Generation: 1, Current: true},
		},
		Payload: t(`{"to":"•••","template":"welcome","locale":"vi"}`),
	}
}
