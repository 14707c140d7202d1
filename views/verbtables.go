package views

// The lists that verbs print as tables and that have no separate pane.

import (
	"cmp"
	"fmt"

	"github.com/qtop/qtop/pgclient/queue"
)

// Hosts returns the worker hosts.
func Hosts(s *queue.Snapshot) Source {
	return Source{}.with(List[queue.Host]{Name: "hosts", Rows: s.Hosts, Columns: []Column[queue.Host]{
		{Name: "state", Plain: func(h queue.Host) string {
			switch {
			case h.StoppedAt != nil:
				return "stopped"
			case h.Alive:
				return "alive"
			}
			return "silent"
		}},
		{Name: "host_id", Head: "HOST"}, {Name: "age_seconds", Head: "SEEN"}, {Name: "in_flight"}, {Name: "version"}, {Name: "loops"},
	}}.lines())
}

// WaitingQueues returns every queue with waiting work, and why it waits.
func WaitingQueues(s *queue.Snapshot) Source {
	return Source{}.with(List[queue.Waiting]{Name: "waiting", Rows: s.Waiting, Columns: []Column[queue.Waiting]{
		{Name: "queue", Plain: func(w queue.Waiting) string { return w.Name() }},
		{Name: "waiting", Plain: func(w queue.Waiting) string { return PlainBound(w.Waiting, w.WaitingBound) }},
		{Name: "age_seconds", Head: "OLDEST", Plain: func(w queue.Waiting) string { return PlainOldest(w.OldestAt, w.AgeSeconds) }},
		{Name: "why", Plain: func(w queue.Waiting) string { return cmp.Or(w.Why.String(), "nothing known blocks it") }},
	}}.lines())
}

// Routes returns which worker routes the events of each domain.
func Routes(rows []queue.Route) Source {
	return Source{}.with(List[queue.Route]{Name: "routes", Rows: rows, Columns: []Column[queue.Route]{
		{Name: "event_domain", Head: "DOMAIN"}, {Name: "worker_name", Head: "WORKER"},
		{Name: "enabled", Head: "ROUTE", Plain: func(r queue.Route) string { return OnOff(r.Enabled) }},
		{Name: "last_run_at", Head: "LAST RUN"},
		{Name: "waiting", Plain: func(r queue.Route) string { return PlainBound(min(r.Waiting, 10_000), r.Waiting > 10_000) }},
		{Name: "oldest_at", Head: "OLDEST"}, {Name: "events_seen", Head: "SEEN"}, {Name: "attempts_written", Head: "ATTEMPTS"},
		{Name: "dead_lettered", Head: "DEAD"}, {Name: "updated_by", Head: "SET BY"},
	}}.lines())
}

// Consumers returns the consumers, and the events for which each gets a job.
func Consumers(rows []queue.Consumer) Source {
	return Source{}.with(List[queue.Consumer]{Name: "consumers", Rows: rows, Columns: []Column[queue.Consumer]{
		{Name: "consumer_id", Head: "CONSUMER"},
		{Name: "event", Plain: func(x queue.Consumer) string { return fmt.Sprintf("%s/%s", x.Domain, x.EventType) }},
		{Name: "job_kind"}, {Name: "executor"},
		{Name: "enabled", Head: "STATE", Plain: func(x queue.Consumer) string { return OnOff(x.Enabled) }},
		{Name: "updated_by", Head: "SET BY"}, {Name: "updated_at", Head: "AT"},
	}}.lines())
}

// EventTypes returns the registered types of events.
func EventTypes(rows []queue.EventType) Source {
	return Source{}.with(List[queue.EventType]{Name: "event-types", Rows: rows, Columns: []Column[queue.EventType]{
		{Name: "event", Plain: func(x queue.EventType) string { return fmt.Sprintf("%s/%s", x.Domain, x.EventType) }},
		{Name: "event_stream", Head: "STREAM"}, {Name: "delivery_lane", Head: "LANE"}, {Name: "worker_name", Head: "ROUTE WORKER", Plain: func(x queue.EventType) string { return cmp.Or(x.Worker.String(), "none") }},
		{Name: "active", Head: "STATE", Plain: func(x queue.EventType) string { return queue.Choose(x.Active, "active", "inactive") }},
		{Name: "description"},
	}}.lines())
}

// Producers returns who may enqueue for each executor kind.
func Producers(rows []queue.ProducerRole) Source {
	return Source{}.with(List[queue.ProducerRole]{Name: "producers", Rows: rows, Columns: []Column[queue.ProducerRole]{
		{Name: "executor_kind", Head: "EXECUTOR KIND"},
		{Name: "producer_role", Head: "MEMBERS OF", Plain: func(x queue.ProducerRole) string { return cmp.Or(x.Role.String(), "(every producer)") }},
	}}.lines())
}

// OperationItems returns the items of a bulk operation with their results.
func OperationItems(o queue.Operation, rows []queue.OperationItem) Source {
	return Source{}.with(List[queue.OperationItem]{Name: "operation-items", Rows: rows, Columns: []Column[queue.OperationItem]{
		{Name: "item_no", Head: "ITEM"}, {Name: "target", Head: "DEAD LETTER"}, {Name: "outcome", Plain: func(i queue.OperationItem) string { return o.Word(i.Outcome) }}, {Name: "new_id", Head: "BECAME"},
		{Name: "first_result", Head: "FIRST ATTEMPT", Plain: func(i queue.OperationItem) string {
			return queue.Choose(o.Unsettled(i), "not settled", cmp.Or(i.FirstResult, "-"))
		}}, {Name: "first_code", Head: "CODE"}, {Name: "at"}, {Name: "why"},
	}}.lines())
}

// CronJobs returns the jobs of pg_cron.
func CronJobs(rows []queue.CronJob) Source {
	return Source{}.with(List[queue.CronJob]{Name: "cron", Rows: rows, Columns: []Column[queue.CronJob]{
		{Name: "state", Plain: CronState},
		{Name: "job_name", Head: "CRON JOB"}, {Name: "schedule"}, {Name: "worker_name", Head: "WORKER"}, {Name: "run_as", Head: "RUNS AS"},
		{Name: "installed_by", Head: "BY"}, {Name: "last_start_at", Head: "LAST START"}, {Name: "last_status", Head: "STATUS"},
		{Name: "last_message", Head: "MESSAGE"},
	}}.lines())
}

// Shares returns the share of events that only broadcast reaches, per domain.
func Shares(b *queue.Broadcast) Source {
	return Source{}.with(List[queue.BroadcastShare]{Name: "shares", Rows: b.Shares, Columns: []Column[queue.BroadcastShare]{
		{Name: "line", Plain: func(s queue.BroadcastShare) string { return queue.Choose(s.Over, "OVER", "ok") }},
		{Name: "domain", Plain: func(s queue.BroadcastShare) string { return cmp.Or(s.Domain.String(), "(all)") }},
		{Name: "percent", Plain: func(s queue.BroadcastShare) string { return PlainPercent(s.Broadcast, s.Events) }},
		{Name: "of_at_most", Plain: func(queue.BroadcastShare) string { return plain("", b.Line) }},
		{Name: "broadcast_events_24h", Head: "BROADCAST 24H"}, {Name: "events_24h", Head: "EVENTS 24H"},
	}}.lines())
}

// Resolved returns the event subscriptions that name a type, each with its outcome.
func Resolved(rows []queue.ResolvedSubscription) Source {
	every := func(of func(queue.ResolvedSubscription) queue.Text) func(queue.ResolvedSubscription) string {
		return func(r queue.ResolvedSubscription) string { return plainEvery(of(r)) }
	}
	return Source{}.with(List[queue.ResolvedSubscription]{Name: "resolved", Rows: rows, Columns: []Column[queue.ResolvedSubscription]{
		{Name: "step"}, {Name: "outcome"}, {Name: "subscription_id", Head: "SUBSCRIPTION"}, {Name: "recipient_ref", Head: "RECIPIENT"},
		{Name: "event_domain", Head: "DOMAIN", Plain: every(func(r queue.ResolvedSubscription) queue.Text { return r.Domain })},
		{Name: "event_type", Head: "TYPE", Plain: every(func(r queue.ResolvedSubscription) queue.Text { return r.Type })},
		{Name: "event_stream", Head: "STREAM", Plain: every(func(r queue.ResolvedSubscription) queue.Text { return r.Stream })},
		{Name: "scope_subject_table", Head: "SUBJECT TABLE"}, {Name: "scope_filter", Head: "PAYLOAD"},
	}}.lines())
}
