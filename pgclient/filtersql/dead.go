package filtersql

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// DeadFrom is the FROM clause of webhook dead letters d.
const DeadFrom = `public.dead_letters d
	JOIN public.subscriptions s ON s.id = d.subscription_id
	JOIN public.webhook_delivery_sagas g ON g.id = d.saga_id`

// DeadState is the state of a webhook dead letter.
const DeadState = `CASE WHEN EXISTS (SELECT 1 FROM public.dead_letter_open o WHERE o.dead_letter_id = d.id) THEN 'open'
	WHEN EXISTS (SELECT 1 FROM public.dead_letter_requeues r WHERE r.dead_letter_id = d.id) THEN 'requeued' ELSE 'resolved' END`

var deadColumns = map[string]Column{
	"id": {Expr: "d.id"}, "code": {Expr: "d.final_error_code"}, "endpoint": {Expr: "s.endpoint"},
	"subscription": {Expr: "d.subscription_id"}, "domain": {Expr: "'webhook'"}, "kind": {Expr: "'webhook'"},
	"type": {Expr: "s.event_type"}, "age": {Expr: "d.failed_at"}, "failed": {Expr: "d.failed_at"},
	"source": {Expr: "'webhook'"}, "state": {Expr: DeadState},
}

// DeadSelection is a filter over the dead letters of all sources.
type DeadSelection struct {
	Filter              *queue.Filter
	Hooks, Jobs, Events *Builder
}

// Dead compiles a filter over dead letters; without a state in the filter, only open ones match.
func Dead(text string) (DeadSelection, error) { return DeadAt(text, time.Time{}) }

// DeadAt is Dead for the dead letters that existed at a time, with ages as of that time; the zero
// time is now.
func DeadAt(text string, at time.Time) (DeadSelection, error) {
	f, err := queue.ParseFilter(text, queue.DeadLetterFields())
	if err != nil {
		return DeadSelection{}, Error(err)
	}
	s := DeadSelection{Filter: f, Hooks: New(deadColumns), Jobs: New(deadJobColumns), Events: New(deadEventColumns)}
	if !at.IsZero() {
		for b, died := range map[*Builder]string{s.Hooks: "d.failed_at", s.Jobs: "d.last_failed_at", s.Events: "d.last_failed_at"} {
			b.Now = b.Arg(at) + "::timestamptz"
			b.And(died + " <= " + b.Now)
		}
	}
	s.Hooks.Where(f)
	s.Jobs.Where(f)
	s.Events.Where(f)
	for _, t := range f.Terms {
		if t.Field == "state" {
			return s, nil
		}
	}
	s.Hooks.And("EXISTS (SELECT 1 FROM public.dead_letter_open o WHERE o.dead_letter_id = d.id)")
	s.Jobs.And("d.resolved_at IS NULL")
	s.Events.And("d.resolved_at IS NULL")
	return s, nil
}

// DeadJobFrom is the FROM clause of job dead letters d.
const DeadJobFrom = "public.job_dead_letter d"

// DeadJobState is the state of a job dead letter.
const DeadJobState = "CASE d.triage_status WHEN 'open' THEN 'open' WHEN 'replayed' THEN 'requeued' ELSE 'resolved' END"

var deadJobColumns = map[string]Column{
	"id": {Expr: "'job:' || d.dead_letter_id", Number: "NULL::numeric"}, "code": {Expr: "d.failure_code"}, "endpoint": {Expr: "d.job_kind"},
	"subscription": {Expr: "NULL::bigint"}, "domain": {Expr: "d.event_domain"}, "kind": {Expr: "d.job_kind"},
	"type": {Expr: "NULL::text"}, "age": {Expr: "d.last_failed_at"}, "failed": {Expr: "d.last_failed_at"},
	"source": {Expr: "'job'"}, "state": {Expr: DeadJobState},
}

// DeadEventFrom is where the event dead letters d are selected from.
const DeadEventFrom = "public.iu_route_dead_letter d"

// DeadEventState is the state of an event dead letter.
const DeadEventState = "CASE WHEN d.resolved_at IS NULL THEN 'open' WHEN d.resolution = 'replayed' THEN 'requeued' ELSE 'resolved' END"

var deadEventColumns = map[string]Column{
	"id": {Expr: "'event:' || d.dead_letter_id", Number: "NULL::numeric"}, "code": {Expr: "d.failure_code"}, "endpoint": {Expr: "d.event_type"},
	"subscription": {Expr: "NULL::bigint"}, "domain": {Expr: "d.event_domain"}, "kind": {Expr: "'event'"},
	"type": {Expr: "d.event_type"}, "age": {Expr: "d.last_failed_at"}, "failed": {Expr: "d.last_failed_at"},
	"source": {Expr: "'event'"}, "state": {Expr: DeadEventState},
}
