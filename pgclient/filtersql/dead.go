package filtersql

import (
	"slices"
	"strings"
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

// DeadSelection is a filter over the dead letters of all sources, or several filters of
// which a dead letter must match one.
type DeadSelection struct {
	Filters             []*queue.Filter
	Hooks, Jobs, Events *Builder
}

// All reports whether a filter is empty, so that every dead letter is selected.
func (s DeadSelection) All() bool {
	return len(s.Filters) == 0 || slices.ContainsFunc(s.Filters, (*queue.Filter).Empty)
}

// Dead compiles filters over dead letters: one that matches any of them is selected. A filter
// without a state matches open ones only.
func Dead(texts ...string) (DeadSelection, error) { return DeadAt(time.Time{}, texts...) }

// DeadAt is Dead for the dead letters that existed at a time, with ages as of that time; the zero
// time is now.
func DeadAt(at time.Time, texts ...string) (DeadSelection, error) {
	s := DeadSelection{Hooks: New(deadColumns), Jobs: New(deadJobColumns), Events: New(deadEventColumns)}
	stateless := 0
	for _, text := range texts {
		f, err := queue.ParseFilter(text, queue.DeadLetterFields())
		if err != nil {
			return DeadSelection{}, Error(err)
		}
		s.Filters = append(s.Filters, f)
		if !hasState(f) {
			stateless++
		}
	}
	for _, x := range []struct {
		b          *Builder
		died, open string
	}{
		{s.Hooks, "d.failed_at", "EXISTS (SELECT 1 FROM public.dead_letter_open o WHERE o.dead_letter_id = d.id)"},
		{s.Jobs, "d.last_failed_at", "d.resolved_at IS NULL"},
		{s.Events, "d.last_failed_at", "d.resolved_at IS NULL"},
	} {
		b := x.b
		if !at.IsZero() {
			b.Now = b.Arg(at) + "::timestamptz"
			b.And(x.died + " <= " + b.Now)
		}
		// A condition that all filters share is kept outside of the OR, so that an index can serve it.
		shared := stateless == len(s.Filters)
		if shared {
			b.And(x.open)
		}
		var alternatives []string
		for _, f := range s.Filters {
			conds := b.conds(f)
			if !shared && !hasState(f) {
				conds = append(conds, x.open)
			}
			if len(s.Filters) == 1 {
				b.Conds = append(b.Conds, conds...)
				break
			}
			alternatives = append(alternatives, "("+strings.Join(append(conds, "true"), " AND ")+")")
		}
		if len(alternatives) > 0 {
			b.And("(" + strings.Join(alternatives, " OR ") + ")")
		}
	}
	return s, nil
}

func hasState(f *queue.Filter) bool {
	return slices.ContainsFunc(f.Terms, func(t queue.Term) bool { return t.Field == "state" })
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
