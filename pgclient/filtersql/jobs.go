package filtersql

import "github.com/qtop/qtop/pgclient/queue"

// JobSince is an SQL expression for the time at which a job got into its current state: finished,
// claimed, or due. A due time outside the years 1 to 9999 counts as the nearest time inside.
const JobSince = `CASE WHEN q.finished_at IS NOT NULL THEN q.finished_at WHEN q.status IN ('leased', 'in_progress') THEN q.picked_at
	ELSE least(greatest(q.enqueued_at, q.process_after, '0001-01-01Z'), '9999-12-31Z') END`

var jobColumns = map[string]Column{
	"id": {Expr: "q.job_id::text", Number: "NULL::numeric", Same: sameUUID("q.job_id", "")}, "kind": {Expr: "q.job_kind"}, "domain": {Expr: "q.event_domain"},
	"status": {Expr: "q.status"}, "executor": {Expr: "q.executor"}, "priority": {Expr: "q.priority"}, "attempts": {Expr: "q.attempts"},
	"age": {Expr: "(" + JobSince + ")"}, "code": {Expr: "q.failure_code"}, "owner": {Expr: "q.lease_owner"},
}

// Jobs compiles a filter over live jobs.
func Jobs(text string) (*Builder, *queue.Filter, error) {
	return Parse(text, queue.JobFields(), jobColumns)
}
