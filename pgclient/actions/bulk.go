package actions

// Life of a bulk operation:
//
//  1. planBulk previews the selection: its size and a few ids, as of one moment.
//  2. applyBulk freezes it: one statement selects the ids again as of that moment and
//     stores them in the server, however many there are. It refuses if the counts differ
//     from the preview.
//  3. The operation is started, paused, resumed, re-rated, aborted or undone by its
//     number; queue.Operation.Refuses says in which state each of these is allowed.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

func bulkActions() []entry {
	operation := func(a queue.Action) entry { // an action on an existing operation, named by its number
		a.Panes, a.Targets, a.Role = []queue.PaneID{queue.PaneOps}, queue.Targets{Name: "OPERATION", Of: "operation"}, "dead_letter_operator"
		return entry{Action: a, plan: planOperation, apply: applyOperation}
	}
	return []entry{
		{Action: queue.Action{
			ID: queue.ActBulkPlan, Words: "ops plan", Example: "qtop ops plan --filter 'code:HTTP_503 age<2h' --rate 20 --brake 20 --canary 5 --reason 'receiver is back'", Key: "N", Panes: []queue.PaneID{queue.PaneDead}, Verb: "Plan", Hint: "at a rate", Title: "Plan an operation: requeue or close at a rate",
			Help:     "requeue or close dead letters at a rate: freeze the selection as an operation, which is started separately",
			Opposite: queue.ActBulkAbort, Undo: "abort it under the number that the result shows; nothing is sent until it is started", Targets: queue.Targets{Name: "ID", Many: true, Instead: "filter", List: "dlq", Of: "dead letter"},
			Danger: queue.DangerMany, Function: "public.fn_queue_bulk_plan(text,text[],text,numeric,integer,integer,text,text)",
			Role: "dead_letter_operator", Reason: true,
			Args: []queue.Arg{
				{Name: "what", Kind: queue.ArgChoice, Label: "What", Default: "requeue", Required: true, Choices: []string{"requeue", "resolve"}, Help: "requeue, or resolve as abandoned"},
				{Name: "rate", Kind: queue.ArgNumber, Min: 0.01, Max: 1000, Label: "Rate", Default: "20", Required: true, Help: "items per second, 0.01 to 1000"},
				{Name: "brake", Kind: queue.ArgWhole, Max: 100, Label: "Brake", Default: "20", Required: true, Help: "pause the operation when this percentage of the last 10 to 50 first attempts failed; 0 = never"},
				{Name: "canary", Kind: queue.ArgWhole, Max: 1000, Label: "Canary", Default: "5", Required: true, Help: "this many items are sent first and must succeed; 0 = none"},
			},
		}, plan: planBulk, apply: applyBulk, match: matchDeadLetters},
		operation(queue.Action{ID: queue.ActBulkRun, Key: "S", Verb: "Start", Opposite: queue.ActBulkPause, Undo: "then U recalls what is not attempted yet", Danger: queue.DangerMany, Function: "public.fn_queue_bulk_run(bigint,text)",
			Words: "ops run", Example: "qtop ops run 12", Help: "start a planned bulk operation; its canary is sent first"}),
		operation(queue.Action{ID: queue.ActBulkPause, Key: "P", Verb: "Pause", Opposite: queue.ActBulkResume, Danger: queue.DangerOne, Function: "public.fn_queue_bulk_pause(bigint,text)",
			Words: "ops pause", Example: "qtop ops pause 12", Help: "pause a bulk operation between two items"}),
		operation(queue.Action{ID: queue.ActBulkResume, Key: "P", Verb: "Resume", Opposite: queue.ActBulkPause, Danger: queue.DangerMany, Function: "public.fn_queue_bulk_resume(bigint,text)",
			Words: "ops resume", Example: "qtop ops resume 12", Help: "continue a paused bulk operation; if the brake paused it, the canary is sent first again"}),
		operation(queue.Action{ID: queue.ActBulkAbort, Key: "X", Verb: "Abort", Danger: queue.DangerOne, Function: "public.fn_queue_bulk_abort(bigint,text)",
			Words: "ops abort", Example: "qtop ops abort 12", Help: "end a bulk operation for good; items that are left remain open dead letters"}),
		operation(queue.Action{ID: queue.ActBulkRate, Key: "+", Verb: "Rate", Undo: "set it back", Danger: queue.DangerOne, Function: "public.fn_queue_bulk_set_rate(bigint,numeric,text)",
			Words: "ops rate", Example: "qtop ops rate 12 --rate 5", Help: "change the rate of a bulk operation, also while it runs",
			Args: []queue.Arg{{Name: "rate", Kind: queue.ArgNumber, Min: 0.01, Max: 1000, Label: "Rate", Required: true, Help: "items per second, 0.01 to 1000"}}}),
		operation(queue.Action{ID: queue.ActBulkUndo, Key: "U", Verb: "Undo", Undo: "requeue or close the dead letters again", Danger: queue.DangerMany, Function: "public.fn_queue_bulk_undo(bigint,text)",
			Words: "ops undo", Example: "qtop ops undo 12", Help: "recall the requeued items of a bulk operation that were not attempted yet, or open again what it closed"}),
	}
}

// bulkPart is the dead letters of one source in a selection. Each source gets its own
// operation.
type bulkPart struct {
	deadLetterSource
	where string // the WHERE clause that selects them
	ids   string // a query for their ids, in the order in which they are processed
	gone  string // a query for those of the given ids that name no dead letter; "" = a filter selects them
	b     *filtersql.Builder
	n     int64
}

// text returns the SQL expression for an id, with the prefix of the source.
func (x bulkPart) text() string { return "'" + x.prefix + "' || id" }

// bulkParts returns the three sources, each with the dead letters that the request selects.
func bulkParts(r queue.Request, at time.Time) (parts []bulkPart, err error) {
	ids, err := deadLetterIDs(r.Targets)
	if err != nil {
		return nil, err
	}
	s, err := filtersql.DeadAt(at, r.Filters()...)
	if err != nil {
		return nil, err
	}
	if len(r.Targets) == 0 && s.All() {
		return nil, emptyFilter("code:HTTP_503 endpoint:hooks.acme*")
	}
	for i, b := range [...]*filtersql.Builder{s.Hooks, s.Jobs, s.Events} {
		x := bulkPart{deadLetterSource: deadLetterSources()[i], where: b.Clause(), b: b}
		if len(r.Targets) == 0 {
			x.from = b.From
		}
		x.ids = "SELECT " + x.id + " AS id FROM " + x.from + x.where + " ORDER BY " + x.order
		if len(r.Targets) > 0 {
			x.b, x.where = &filtersql.Builder{}, x.given()
			given := "SELECT g.id FROM (SELECT u.id, min(u.n) AS n FROM unnest(" + x.b.Arg(ids[i]) + "::text[]::" + x.array + ") WITH ORDINALITY u (id, n) GROUP BY u.id) g" +
				" WHERE g.id %s IN (SELECT " + x.id + " FROM " + x.from + x.where + ") ORDER BY g.n"
			x.ids, x.gone = fmt.Sprintf(given, ""), fmt.Sprintf(given, "NOT")
		}
		if r.Args["what"] == "resolve" {
			x.bulk = queue.BulkResolve
		}
		parts = append(parts, x)
	}
	return parts, nil
}

// bulkNumbers parses the numeric arguments of the plan action.
func bulkNumbers(r queue.Request) (rate float64, brake, canary int, err error) {
	if rate, err = rateOf(r); err != nil {
		return 0, 0, 0, err
	}
	if brake, err = strconv.Atoi(r.Args["brake"]); err != nil {
		return 0, 0, 0, err
	}
	canary, err = strconv.Atoi(r.Args["canary"])
	return rate, brake, canary, err
}

func planBulk(ctx context.Context, c *Planner, p *queue.Plan) error {
	rate, brake, canary, err := bulkNumbers(p.Request)
	if err != nil {
		return err
	}
	var at time.Time
	if err := c.act.QueryRow(ctx, "SELECT now()").Scan(&at); err != nil {
		return err
	}
	p.Expect = at.UTC().Format(time.RFC3339Nano)
	parts, err := bulkParts(p.Request, at)
	if err != nil {
		return err
	}
	var all []group
	for i := range parts {
		x := &parts[i]
		some, err := c.groups(ctx, x.title(), "FROM "+x.from+x.where, 0, x.b.Args...)
		if err != nil {
			return err
		}
		_, x.n = namesOf(some)
		all = append(all, some...)
		p.Count += x.n
		p.Expect += fmt.Sprintf(" %s=%d", x.name, x.n)
	}
	gone, err := c.gone(ctx, parts)
	switch {
	case err != nil:
		return err
	case p.Count == 0 && len(gone) > 0:
		return refuse(p, "not_found", "there is no dead letter "+missing(gone))
	case p.Count == 0:
		return refuse(p, "empty", "no row matches the selection")
	case slices.ContainsFunc(parts, func(x bulkPart) bool { return x.n > mostFrozen }):
		return refuse(p, "too_many", fmt.Sprintf("an operation holds at most %d dead letters, and %d match: narrow the filter", mostFrozen, p.Count))
	}
	names, _ := namesOf(all)
	addLine(p, "dead letters", "%d, as of %s: %s; later dead letters are not included", p.Count, queue.Stamp(at, "15:04:05Z"), names)
	if len(gone) > 0 {
		addLine(p, "left out", "%s: there is no such dead letter", missing(gone))
		tally(p, skipMissing(gone))
	}
	if err := c.inOperations(ctx, p, parts); err != nil {
		return err
	}
	for _, x := range parts {
		if x.n > 0 && x.bulk == "requeue_webhook" {
			if err := c.beside(ctx, p, true, subscriptionsOf(x.deadLetterSource, x.where), x.b.Args...); err != nil {
				return err
			}
		}
	}
	for _, x := range parts {
		if x.n == 0 {
			continue
		}
		if x.n < p.Count {
			addLine(p, "operation", "a separate one for the %d of source %s", x.n, x.name)
		}
		if err := x.breakdown(c, ctx, p, x.from, x.where, x.b.Args...); err != nil {
			return err
		}
		if err := c.sample(ctx, p, x); err != nil {
			return err
		}
		if err := c.blockedPart(ctx, p, x); err != nil {
			return err
		}
	}
	takes := lasts(p.Count, rate)
	var kinds []string
	for _, x := range parts {
		if x.n > 0 {
			kinds = append(kinds, x.bulk)
		}
	}
	p.Lines = append(p.Lines, line("rate", "%s/s: about %s from the start; if started now, it ends at %s", rateText(rate), span(takes),
		queue.Stamp(at.Add(takes), "2006-01-02 15:04:05Z")), firstMinute(p.Count, rate))
	if p.Request.Args["what"] == "requeue" {
		p.Lines = append(p.Lines, line("canary", "%s", queue.Choose(canary == 0, "none", fmt.Sprintf("the first %d must succeed", canary))),
			line("brake", "%s", queue.BrakeWords(brake)))
	}
	if err := c.runners(ctx, p, kinds...); err != nil {
		return err
	}
	waitsFirst(p, "rate", takes, rate)
	return nil
}

// mostFrozen is how many dead letters an operation may hold.
const mostFrozen = 1_000_000

// gone returns the ids of a selection that name no dead letter: they were mistyped, or their
// retention is over.
func (c *Planner) gone(ctx context.Context, parts []bulkPart) (ids []string, err error) {
	for _, x := range parts {
		if x.gone == "" {
			continue
		}
		some, err := pgrow.Column[string](ctx, c.act, "SELECT "+x.text()+" FROM ("+x.gone+") s", x.b.Args...)
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

// skipMissing returns the outcomes of ids that name no dead letter.
func skipMissing(ids []string) (out []queue.Outcome) {
	for _, id := range ids {
		out = append(out, queue.Outcome{ID: id, Outcome: "skipped", Why: queue.Clean("no such dead letter: never written, or removed by retention")})
	}
	return out
}

// missing names the first of some ids, and how many more there are.
func missing(ids []string) string {
	n := min(len(ids), 3)
	return strings.Join(ids[:n], ", ") + queue.Choose(len(ids) > n, fmt.Sprintf(" and %d more", len(ids)-n), "")
}

// lasts returns how long n items take at a rate in items per second.
func lasts(n int64, rate float64) time.Duration {
	return time.Duration(float64(n) / rate * float64(time.Second)).Round(time.Second)
}

// span returns a duration as the verbs print it.
func span(d time.Duration) string { return queue.Span(int64(d.Seconds())) }

// waitsFirst replaces the line that says how long an operation takes if something blocks it: the
// operation then waits, nobody knows for how long.
func waitsFirst(p *queue.Plan, label string, takes time.Duration, rate float64) {
	if p.Blocked == 0 {
		return
	}
	what := queue.Choose(p.Circuits == p.Blocked, "the circuit", "what blocks it")
	for i := range p.Lines {
		if p.Lines[i].Label == label {
			p.Lines[i] = line(label, "%s/s: it waits for %s first, then about %s", rateText(rate), what, span(takes))
		}
	}
}

// firstMinute returns the preview line about how many of n items are sent in the first minute at a
// rate in items per second.
func firstMinute(n int64, rate float64) queue.PlanLine {
	return line("first minute", "%d of %d", min(n, int64(math.Ceil(rate*60))), n)
}

// sample adds a line with the first three ids of a part, in the order in which the operation will
// carry them out.
func (c *Planner) sample(ctx context.Context, p *queue.Plan, x bulkPart) error {
	ids, err := pgrow.Column[string](ctx, c.act, "SELECT "+x.text()+" FROM ("+x.ids+" LIMIT 3) s", x.b.Args...)
	addLine(p, "first ids", "%s", strings.Join(ids, ", "))
	return err
}

// runners adds lines that warn if requeueing is switched off, if no live host runs bulk operations,
// or if requeued webhooks would have no host to send them.
func (c *Planner) runners(ctx context.Context, p *queue.Plan, kinds ...string) error {
	var n, senders int
	var off, unrouted bool
	err := c.act.QueryRow(ctx, `SELECT count(*) FILTER (WHERE 'bulk_operation_runner' = ANY (h.loops)), count(*) FILTER (WHERE 'webhook_worker' = ANY (h.loops)),
			EXISTS (SELECT FROM public.dot_config f WHERE f.key = 'queue.dlq.replay_enabled' AND f.value <> 'true'),
			EXISTS (SELECT FROM public.dot_config f WHERE f.key = 'iu_core.routes_master_enabled' AND f.value <> 'true')
		FROM public.queue_host h WHERE h.stopped_at IS NULL AND h.last_seen_at > now() - interval '15 seconds'
			AND h.last_seen_at <= clock_timestamp() + interval '5 seconds'`).Scan(&n, &senders, &off, &unrouted)
	if err != nil {
		return err
	}
	if off && slices.ContainsFunc(kinds, func(kind string) bool { return kind != queue.BulkResolve }) {
		addBlocked(p, "", "queue.dlq.replay_enabled is off", false)
	}
	if unrouted && slices.Contains(kinds, "replay_event") {
		addBlocked(p, "", "iu_core.routes_master_enabled is off", false)
	}
	if err := c.blockedLoop(ctx, p, "bulk_operation_runner", ""); err != nil {
		return err
	}
	if senders == 0 && slices.Contains(kinds, "requeue_webhook") {
		addLine(p, "note", "requeued items pile up meanwhile, the brake does not see them, and all are sent as soon as a host sends webhooks")
	}
	if n == 0 {
		addLine(p, "hosts", "no live host runs bulk operations: start one (g w S, or qtop worker)")
	} else {
		addLine(p, "hosts", "%d can run it", n)
	}
	return nil
}

func applyBulk(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	rate, brake, canary, err := bulkNumbers(p.Request)
	if err != nil {
		return err
	}
	seen, counts, _ := strings.Cut(p.Expect, " ")
	at, err := time.Parse(time.RFC3339Nano, seen)
	if err != nil {
		return err
	}
	parts, err := bulkParts(p.Request, at)
	if err != nil {
		return err
	}
	gone, err := c.gone(ctx, parts)
	if err != nil {
		return err
	}
	filter := recorded(p.Request)
	errChanged := errors.New("changed since the preview")
	err = pgx.BeginFunc(ctx, c.act, func(tx pgx.Tx) error {
		frozen := ""
		for _, x := range parts {
			var a struct {
				answer
				ID     int64 `json:"operation_id"`
				Frozen int64 `json:"frozen_count"`
			}
			// Count first: an empty selection does not become an operation.
			if err := tx.QueryRow(ctx, "SELECT count(*) FROM ("+x.ids+") s", x.b.Args...).Scan(&a.Frozen); err != nil {
				return err
			}
			if a.Frozen > 0 {
				b := x.b.Clone()
				sql := "SELECT public.fn_queue_bulk_plan(" + b.Arg(x.bulk) + ", ARRAY(SELECT " + x.text() + " FROM (" + x.ids + ") s), " + b.Arg(filter) + ", " +
					b.Arg(rateText(rate)) + "::numeric, " + b.Arg(brake) + ", " + b.Arg(canary) + ", " +
					b.Arg(p.Request.Actor) + ", " + b.Arg(p.Request.Reason) + ")"
				if err := tx.QueryRow(ctx, sql, b.Args...).Scan(&a); err != nil {
					return err
				}
				res.AuditID = a.AuditID
				res.Done += a.Frozen
				res.Results = append(res.Results, queue.Outcome{ID: x.name, Outcome: "planned", NewID: strconv.FormatInt(a.ID, 10)})
			}
			frozen += fmt.Sprintf(" %s=%d", x.name, a.Frozen)
		}
		if frozen = strings.TrimSpace(frozen); frozen != counts {
			res.Refused = "the selection changed since the preview, from " + counts + " to " + frozen + ": nothing was planned; plan again"
			return errChanged
		}
		return nil
	})
	if errors.Is(err, errChanged) {
		var a answer
		a, err = c.changed(ctx, "bulk_plan", filter, p.Request.Actor, p.Request.Reason, res.Refused)
		*res = queue.Result{Action: res.Action, Plan: res.Plan, Refused: a.Reason, Skipped: 1, AuditID: a.AuditID}
	} else if err == nil {
		record(res, skipMissing(gone))
	} else { // what was counted in the transaction was not made, or nobody knows
		*res = queue.Result{Action: res.Action, Plan: res.Plan}
	}
	return err
}

// recorded returns the selection as the operation records it, in at most 10,000 characters: of many
// filters the first ones, with the number of the others.
func recorded(r queue.Request) string {
	const most = 10000
	switch s := r.Selection(); {
	case s == "":
		return queue.Plural(len(r.Targets), "id", "ids")
	case utf8.RuneCountInString(s) <= most:
		return s
	}
	s := []rune(r.Selected())
	return string(s[:min(len(s), most)])
}
