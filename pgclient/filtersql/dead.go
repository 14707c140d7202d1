package filtersql

import (
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/queue"
)

// DeadFrom is the FROM clause of webhook dead letters d.
const DeadFrom = "public.dead_letters d " + deadRest

// DeadState is an SQL expression for the state of a webhook dead letter: open, requeued or
// resolved.
const DeadState = `CASE WHEN ` + hookOpen + ` THEN 'open' WHEN ` + hookRequeued + ` THEN 'requeued' ELSE 'resolved' END`

// deadOpen is the FROM clause of open webhook dead letters. dead_letter_open repeats the columns
// that filters use, and its index is in the order of the groups.
const deadOpen = "public.dead_letter_open o JOIN public.dead_letters d ON d.id = o.dead_letter_id " + deadRest

// deadRest uses LEFT JOIN, although no row is ever missing, because PostgreSQL leaves a left-joined
// table out of the plan if no column of that table is used.
const deadRest = `LEFT JOIN public.subscriptions s ON s.id = d.subscription_id
	LEFT JOIN public.webhook_delivery_sagas g ON g.id = d.saga_id`

var deadColumns = map[string]Column{
	"id": {Expr: "d.id", Same: sameNumber("d.id")}, "code": {Expr: "d.final_error_code", Upper: true}, "endpoint": {Expr: "s.endpoint"},
	"subscription": {Expr: "d.subscription_id"}, "domain": {Const: true, Text: "webhook"}, "kind": {Const: true, Text: "webhook"},
	"type": {Expr: "s.event_type"}, "age": {Expr: "d.failed_at"}, "failed": {Expr: "d.failed_at"},
	"source": {Const: true, Text: "webhook"}, "state": {Expr: DeadState, Cases: []Case{
		{"open", hookOpen}, {"requeued", "NOT " + hookOpen + " AND " + hookRequeued}, {"resolved", "NOT " + hookOpen + " AND NOT " + hookRequeued}}},
}

const (
	hookOpen     = "EXISTS (SELECT 1 FROM public.dead_letter_open o WHERE o.dead_letter_id = d.id)"
	hookRequeued = "EXISTS (SELECT 1 FROM public.dead_letter_requeues r WHERE r.dead_letter_id = d.id)"
)

// Queries for the codes of open dead letters: a pattern is compared with each code once, instead of
// with each dead letter.
const (
	openHookCodes = `WITH RECURSIVE c (v) AS ((SELECT x.final_error_code::text FROM public.dead_letter_open x ORDER BY x.final_error_code LIMIT 1)
		UNION ALL SELECT (SELECT x.final_error_code::text FROM public.dead_letter_open x WHERE x.final_error_code > c.v ORDER BY x.final_error_code LIMIT 1) FROM c WHERE c.v IS NOT NULL)
		SELECT v FROM c WHERE v IS NOT NULL`
	openJobCodes = `WITH RECURSIVE c (v) AS ((SELECT x.failure_code FROM public.job_dead_letter x WHERE x.resolved_at IS NULL ORDER BY x.failure_code LIMIT 1)
		UNION ALL SELECT (SELECT x.failure_code FROM public.job_dead_letter x WHERE x.resolved_at IS NULL AND x.failure_code > c.v ORDER BY x.failure_code LIMIT 1) FROM c WHERE c.v IS NOT NULL)
		SELECT v FROM c WHERE v IS NOT NULL`
	openEventCodes = `WITH RECURSIVE c (d, v) AS (SELECT * FROM (SELECT x.event_domain, x.failure_code FROM public.iu_route_dead_letter x
			WHERE x.resolved_at IS NULL ORDER BY x.event_domain, x.failure_code LIMIT 1) f
		UNION ALL SELECT n.* FROM c CROSS JOIN LATERAL (SELECT x.event_domain, x.failure_code FROM public.iu_route_dead_letter x WHERE x.resolved_at IS NULL
			AND (x.event_domain, x.failure_code) > (c.d, c.v) ORDER BY x.event_domain, x.failure_code LIMIT 1) n)
		SELECT v FROM c WHERE true`
)

// openColumns are used instead of deadColumns for open dead letters; most of them are columns of
// dead_letter_open.
var openColumns = map[string]Column{
	"id": {Expr: "o.dead_letter_id", Same: sameNumber("o.dead_letter_id")}, "code": {Expr: "o.final_error_code", Distinct: openHookCodes, Upper: true}, "endpoint": {Expr: "s.endpoint"},
	"subscription": {Expr: "o.subscription_id"}, "domain": deadColumns["domain"], "kind": deadColumns["kind"],
	"type": {Expr: "s.event_type"}, "age": {Expr: "o.failed_at"}, "failed": {Expr: "o.failed_at"}, "source": deadColumns["source"],
	"state": {Const: true, Text: "open"},
}

// DeadSelection is a filter over the dead letters of all sources, or several filters of
// which a dead letter must match one.
type DeadSelection struct {
	Filters             []*queue.Filter // as parsed; a dead letter must match one of them
	Hooks, Jobs, Events *Builder        // the conditions for the dead letters of each source
}

// All reports whether a filter is empty, so that every dead letter is selected.
func (s DeadSelection) All() bool {
	return len(s.Filters) == 0 || slices.ContainsFunc(s.Filters, (*queue.Filter).Empty)
}

// Dead compiles filters over dead letters; a dead letter that matches any of the filters is
// selected. A filter that does not mention the state matches open dead letters only.
func Dead(texts ...string) (DeadSelection, error) { return DeadAt(time.Time{}, texts...) }

// DeadAt is like Dead, for the dead letters that existed at a time, with ages as of that time; the
// zero time means now.
func DeadAt(at time.Time, texts ...string) (DeadSelection, error) {
	var s DeadSelection
	var filters []*queue.Filter // like s.Filters, without the terms about the state where they only ask for open dead letters
	var open []bool
	for _, text := range texts {
		f, err := queue.ParseFilter(text, queue.DeadLetterFields())
		if err != nil {
			return DeadSelection{}, Error(err)
		}
		s.Filters = append(s.Filters, f)
		f, isOpen := openOnly(f)
		filters, open = append(filters, f), append(open, isOpen)
	}
	shared := !slices.Contains(open, false) // if every filter asks for open dead letters, "is open" is one condition outside of the OR, so that an index can serve it
	s.Hooks = &Builder{columns: deadColumns, From: DeadFrom, Rows: DeadFrom, Key: "d.id"}
	if shared {
		s.Hooks = &Builder{columns: openColumns, From: deadOpen, Rows: "public.dead_letter_open o LEFT JOIN public.subscriptions s ON s.id = o.subscription_id", Key: "o.dead_letter_id"}
	}
	s.Jobs = &Builder{columns: deadJobColumns, From: DeadJobFrom, Rows: DeadJobFrom, Key: "d.dead_letter_id"}
	s.Events = &Builder{columns: deadEventColumns, From: DeadEventFrom, Rows: DeadEventFrom, Key: "d.dead_letter_id"}
	for _, b := range []*Builder{s.Hooks, s.Jobs, s.Events} {
		b.open = shared
		b.Now = "now()"
		if !at.IsZero() {
			b.Now = b.Arg(at) + "::timestamptz"
			// After the server's clock went back, dead letters may lie ahead of it, and are open nevertheless.
			// Those of the next hour are left out, like those that arrive after the preview.
			b.And("(" + b.columns["failed"].Expr + " <= " + b.Now + " OR " + b.columns["failed"].Expr + " > " + b.Now + " + interval '1 hour')")
		}
		isOpen := "d.resolved_at IS NULL"
		if b == s.Hooks {
			isOpen = hookOpen
		}
		if shared && b != s.Hooks { // the FROM clause of webhooks has only open dead letters
			b.And(isOpen)
		}
		if len(filters) == 1 { // each term becomes a separate condition, so that an index can serve it
			b.Where(filters[0])
			continue
		}
		if alternatives := b.decide(func() string {
			var alts []string
			for i, f := range filters {
				alts = append(alts, b.decide(func() string {
					conds := b.conds(f)
					if open[i] && !shared {
						conds = append(conds, isOpen)
					}
					return allOf(conds)
				}))
			}
			return anyOf(alts)
		}); len(filters) > 0 && alternatives != always {
			b.And(alternatives)
		}
	}
	return s, nil
}

// openOnly reports whether a filter matches only open dead letters (also a filter that does not
// mention the state), and returns the filter without the terms about the state.
func openOnly(f *queue.Filter) (*queue.Filter, bool) {
	if f.Empty() {
		return f, true
	}
	var state, rest queue.Filter
	for _, t := range f.Terms {
		if t.Field == "state" {
			state.Terms = append(state.Terms, t)
		} else {
			rest.Terms = append(rest.Terms, t)
		}
	}
	if len(state.Terms) == 0 {
		return f, true
	}
	for _, x := range deadColumns["state"].Cases {
		if state.Match(func(string) (any, bool) { return x.Text, true }, time.Time{}) != (x.Text == "open") {
			return f, false
		}
	}
	return f.With(rest.Terms), true
}

// DeadJobFrom is the FROM clause of job dead letters d.
const DeadJobFrom = "public.job_dead_letter d"

// DeadJobState is the state of a job dead letter.
const DeadJobState = "CASE d.triage_status WHEN 'open' THEN 'open' WHEN 'replayed' THEN 'requeued' ELSE 'resolved' END"

var deadJobColumns = map[string]Column{
	"id": {Expr: "'job:' || d.dead_letter_id", Number: "NULL::numeric", Same: sameUUID("d.dead_letter_id", parseid.JobPrefix)}, "code": {Expr: "d.failure_code", Distinct: openJobCodes, Upper: true}, "endpoint": {Expr: "d.job_kind"},
	"subscription": {Const: true}, "domain": {Expr: "d.event_domain"}, "kind": {Expr: "d.job_kind"},
	"type": {Const: true}, "age": {Expr: "d.last_failed_at"}, "failed": {Expr: "d.last_failed_at"},
	"source": {Const: true, Text: "job"}, "state": {Expr: DeadJobState, Cases: []Case{
		{"open", "d.resolved_at IS NULL"}, {"requeued", "d.triage_status = 'replayed'"}, {"resolved", "d.triage_status NOT IN ('open', 'replayed')"}}},
}

// DeadEventFrom is where the event dead letters d are selected from.
const DeadEventFrom = "public.iu_route_dead_letter d"

// DeadEventState is the state of an event dead letter.
const DeadEventState = "CASE WHEN d.resolved_at IS NULL THEN 'open' WHEN d.resolution = 'replayed' THEN 'requeued' ELSE 'resolved' END"

var deadEventColumns = map[string]Column{
	"id": {Expr: "'event:' || d.dead_letter_id", Number: "NULL::numeric", Same: sameUUID("d.dead_letter_id", parseid.EventPrefix)}, "code": {Expr: "d.failure_code", Distinct: openEventCodes, Upper: true}, "endpoint": {Expr: "d.event_type"},
	"subscription": {Const: true}, "domain": {Expr: "d.event_domain"}, "kind": {Const: true, Text: "event"},
	"type": {Expr: "d.event_type"}, "age": {Expr: "d.last_failed_at"}, "failed": {Expr: "d.last_failed_at"},
	"source": {Const: true, Text: "event"}, "state": {Expr: DeadEventState, Cases: []Case{
		{"open", "d.resolved_at IS NULL"}, {"requeued", "d.resolution = 'replayed'"}, {"resolved", "d.resolution <> 'replayed'"}}},
}
