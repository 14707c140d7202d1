package actions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

func deadLetterActions() []entry {
	deadLetter := func(a queue.Action) entry {
		a.Panes, a.Noun, a.Danger, a.Role, a.Reason = []queue.PaneID{queue.PaneDead}, "dead letter", queue.DangerMany, "dead_letter_operator", true
		a.Targets.Name, a.Targets.Many = "ID", true
		return entry{Action: a, plan: planDeadLetters, apply: applyDeadLetters, match: matchDeadLetters}
	}
	selected := queue.Targets{Instead: "filter", List: "dlq", Of: "dead letter"}
	return []entry{
		deadLetter(queue.Action{
			ID: queue.ActRequeue, Words: "requeue", Example: "qtop requeue 4812 job:0190a6f0-7b1c-7c6e-9d5e-3f1f6a0c2b11 --reason 'receiver is back'", Key: "R", Verb: "Requeue", Opposite: queue.ActUndoRequeue, Undo: "only until the first attempt; an event stays routed", Targets: selected,
			Help: "create one new saga or job per dead letter, or route its event again", Function: "public.fn_dead_letter_requeue(bigint[],text,text,boolean)",
		}),
		deadLetter(queue.Action{
			ID: queue.ActResolve, Words: "resolve", Example: "qtop resolve 4812 --resolution duplicate --reason 'sent by hand'", Key: "C", Verb: "Close", Opposite: queue.ActReopen, Targets: selected,
			Help: "close a dead letter with a resolution, without sending it", Function: "public.fn_dead_letter_resolve(bigint[],text,text,text,boolean)",
			Args: []queue.Arg{{
				Name: "resolution", Label: "Resolution", Default: "abandoned", Required: true,
				Choices: resolutions(), Help: "why it need not be sent: " + resolutionWords(),
			}},
		}),
		deadLetter(queue.Action{
			ID: queue.ActReopen, Words: "reopen", Example: "qtop reopen 4812 --reason 'it was not sent after all'", Verb: "Reopen", Opposite: queue.ActResolve, Targets: queue.Targets{Instead: "filter", List: "dlq", Of: "closed dead letter"},
			Help: "open a closed dead letter again", Function: "public.fn_dead_letter_reopen(bigint[],text,text,boolean)",
		}),
		deadLetter(queue.Action{
			ID: queue.ActUndoRequeue, Words: "undo", Example: "qtop undo 4812 --reason 'requeued too early'", Key: "U", Verb: "Undo requeue of", Opposite: queue.ActRequeue, Targets: queue.Targets{Of: "requeued dead letter"},
			Help: "recall a requeued dead letter whose saga has no job yet", Function: "public.fn_dead_letter_requeue_undo(bigint[],text,text,boolean)",
		}),
	}
}

// deliveredOtherwise and doneOtherwise are one resolution, in the words of webhooks and of the other
// sources.
const (
	deliveredOtherwise = "delivered_otherwise"
	doneOtherwise      = "done_otherwise"
)

// resolutions returns the reasons for which a dead letter is closed.
func resolutions() []string { return []string{"abandoned", deliveredOtherwise, "duplicate"} }

// resolutionWords returns the resolutions as a text.
func resolutionWords() string {
	all := resolutions()
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// shownOutcomes is the largest number of per-id outcomes that a plan carries to a screen.
const shownOutcomes = 1000

// deadLetterSource holds what differs between the sources of dead letters.
type deadLetterSource struct {
	name, prefix string // the name of the source, and the prefix that the console gives its ids
	array        string // the SQL type of an array of the source's ids
	from, id     string // the FROM clause of its dead letters, and the id column
	place, code  string // SQL expressions: the destination of a dead letter, and its error code
	order        string // the order in which a bulk operation processes the dead letters
	bulk         string // the kind of bulk operation that requeues the dead letters
	otherwise    string // the source's word for the resolution "delivered otherwise"
	// breakdown adds lines that say where requeued dead letters would go.
	breakdown func(*Planner, context.Context, *queue.Plan, string, string, ...any) error
	calls     map[queue.ActionID]string // the function for each action; none for an action that the source does not support
}

// deadLetterSources returns webhooks, jobs and events, in the order of a filtersql.DeadSelection.
func deadLetterSources() [3]deadLetterSource {
	return [3]deadLetterSource{
		{"webhook", "", "bigint[]", filtersql.DeadFrom, "d.id", "s.endpoint", "d.final_error_code", "d.id", "requeue_webhook", deliveredOtherwise, (*Planner).breakdown, map[queue.ActionID]string{
			queue.ActRequeue: "fn_dead_letter_requeue", queue.ActResolve: "fn_dead_letter_resolve",
			queue.ActReopen: "fn_dead_letter_reopen", queue.ActUndoRequeue: "fn_dead_letter_requeue_undo",
		}},
		{"job", parseid.JobPrefix, "uuid[]", filtersql.DeadJobFrom, "d.dead_letter_id", "'job ' || d.job_kind", "d.failure_code", byDeath, "replay_job", doneOtherwise, (*Planner).jobBreakdown, map[queue.ActionID]string{
			queue.ActRequeue: "fn_job_dead_letter_replay", queue.ActResolve: "fn_job_dead_letter_resolve",
			queue.ActReopen: "fn_job_dead_letter_reopen", queue.ActUndoRequeue: "fn_job_dead_letter_replay_undo",
		}},
		{"event", parseid.EventPrefix, "uuid[]", filtersql.DeadEventFrom, "d.dead_letter_id", "'event ' || d.event_domain || '/' || d.event_type", "d.failure_code", byDeath, "replay_event", doneOtherwise, (*Planner).eventBreakdown, map[queue.ActionID]string{
			queue.ActRequeue: "fn_iu_route_dead_letter_replay", queue.ActResolve: "fn_iu_route_dead_letter_resolve",
			queue.ActReopen: "fn_iu_route_dead_letter_reopen",
		}},
	}
}

const byDeath = "d.last_failed_at, d.dead_letter_id"

// given returns the WHERE clause for dead letters whose ids are the parameter $1.
func (s deadLetterSource) given() string {
	return " WHERE " + s.id + " = ANY ($1::text[]::" + s.array + ")"
}

// call returns the statement that carries out the request's action on the source's dead letters.
func (s deadLetterSource) call(r queue.Request, ids []string, dry bool) (sql string, args []any) {
	sql, args = "SELECT public."+s.calls[r.Action]+"($1::text[]::"+s.array, []any{ids, r.Actor, r.Reason, dry}
	if r.Action != queue.ActResolve {
		return sql + ", $2, $3, $4)", args
	}
	why := r.Args["resolution"]
	if why == doneOtherwise || why == deliveredOtherwise { // the sources use different words for the same resolution
		why = s.otherwise
	}
	return sql + ", $5, $3, $2, $4)", append(args, why)
}

// deadLetterIDs parses the targets and groups their ids by source.
func deadLetterIDs(targets []string) (ids [3][]string, err error) {
	for _, t := range targets {
		var id string
		source := 0
		switch {
		case parseid.IsJobDeadLetter(t):
			source = 1
			id, err = parseid.UUID(t, "job dead letter", parseid.JobPrefix)
		case parseid.IsEventDeadLetter(t):
			source = 2
			id, err = parseid.UUID(t, "event dead letter", parseid.EventPrefix)
		default:
			var n int64
			n, err = parseid.Webhook(t)
			id = strconv.FormatInt(n, 10)
		}
		if err != nil {
			return ids, err
		}
		ids[source] = append(ids[source], id)
	}
	return ids, nil
}

// deadLettersAnswer is the combined result of the functions of all sources.
type deadLettersAnswer struct {
	results []queue.Outcome
	auditID int64  // of the last audit row written
	refused string // set if the whole request was refused
	rule    string
}

// callAll calls the functions of all sources in one transaction, so that the request is carried
// out completely or not at all. One flag switches requeueing off for all sources, so the first
// refusal is that of the whole request: everything is rolled back, also what a function did before
// the flag was switched off.
func (c *Planner) callAll(ctx context.Context, r queue.Request, dry bool) (deadLettersAnswer, error) {
	ids, err := deadLetterIDs(r.Targets)
	if err != nil {
		return deadLettersAnswer{}, err
	}
	errRefused := errors.New("refused")
	var out deadLettersAnswer
	err = pgx.BeginFunc(ctx, c.act, func(tx pgx.Tx) error {
		for i, s := range deadLetterSources() {
			switch {
			case len(ids[i]) == 0:
				continue
			case s.calls[r.Action] == "":
				out.results = append(out.results, skipEvents(ids[i])...)
				continue
			}
			var a answer
			sql, args := s.call(r, ids[i], dry)
			if err := tx.QueryRow(ctx, sql, args...).Scan(&a); err != nil {
				return err
			}
			if a.Refused {
				begun := len(out.results) > 0
				out = deadLettersAnswer{refused: a.Reason, rule: a.Rule, auditID: a.AuditID}
				if begun {
					out.auditID = 0
					return errRefused
				}
				return nil
			}
			out.auditID = a.AuditID
			for _, o := range a.outcomes(s.prefix) {
				o.Outcome = requestOutcome(o.Outcome)
				out.results = append(out.results, o)
			}
		}
		return nil
	})
	if errors.Is(err, errRefused) {
		err = nil
	}
	return out, err
}

// skipEvents returns the outcomes of an undo for events that were routed again: their
// recipients may have read them, so they cannot be recalled.
func skipEvents(events []string) (out []queue.Outcome) {
	for _, id := range events {
		out = append(out, queue.Outcome{ID: queue.EventDeadLetterID(id), Outcome: "skipped", Why: queue.Clean(queue.NotRecalled)})
	}
	return out
}

// requestOutcome returns the outcome in the words of the request, the same for every source:
// the functions for jobs and events say "replay" for "requeue".
func requestOutcome(outcome string) string {
	switch outcome {
	case "replayed":
		return "requeued"
	case "would_replay":
		return "would_requeue"
	case "would_replay_undo":
		return "would_requeue_undo"
	}
	return outcome
}

func planDeadLetters(ctx context.Context, c *Planner, p *queue.Plan) error {
	if v := p.Request.Args["resolution"]; p.Request.Action == queue.ActResolve && !slices.Contains(append(resolutions(), doneOtherwise), v) {
		return queue.NewError(queue.KindUsage, strconv.Quote(v)+" is no resolution", "--resolution", "write "+resolutionWords())
	}
	if len(p.Request.Targets) == 0 {
		ids, err := c.freeze(ctx, p.Request)
		if err != nil {
			return err
		}
		p.Request.Targets = ids
	}
	if len(p.Request.Targets) == 0 {
		return refuse(p, "empty", "no row matches the selection")
	}
	a, err := c.callAll(ctx, p.Request, true)
	if err != nil {
		return err
	}
	if a.refused != "" {
		return refuse(p, a.rule, a.refused)
	}
	reasons := tally(p, a.results)
	ids, err := deadLetterIDs(p.Request.Targets)
	if err != nil {
		return err
	}
	names, err := c.deadNames(ctx, ids)
	if err != nil {
		return err
	}
	counted(p, "dead letters", len(a.results), names, "none of them exists")
	if p.Request.Action == queue.ActRequeue && p.Count > 1 {
		addLine(p, "rate", "no limit: all are due at once; at a rate: N in pane 5, or qtop requeue --rate N")
	}
	var sources []string
	for i, s := range deadLetterSources() {
		if len(ids[i]) == 0 {
			continue
		}
		sources = append(sources, s.name+"s")
		if err := s.breakdown(c, ctx, p, s.from, s.given(), ids[i]); err != nil {
			return err
		}
	}
	if p.Request.Action == queue.ActRequeue {
		if err := c.blockedDeadLetters(ctx, p, ids); err != nil {
			return err
		}
	}
	if len(sources) > 1 {
		addLine(p, "audit", "%s rows, one for the %s; the result shows the id of the last", []string{"two", "three"}[len(sources)-2], strings.Join(sources, " and one for the "))
	}
	return reasons.refuseIfNone(p, "none of the selected dead letters can be "+pastParticiple(p.Request.Action))
}

// skipReasons counts the ids that are skipped for each reason; order has the reasons in the order
// in which they first occurred.
type skipReasons struct {
	order []string
	n     map[string]int
}

// tally counts the outcomes of a dry run in the plan, keeps the first of them for a screen,
// and returns the reasons of those that would be skipped.
func tally(p *queue.Plan, all []queue.Outcome) skipReasons {
	w := skipReasons{n: map[string]int{}}
	for _, r := range all {
		if strings.HasPrefix(r.Outcome, "would_") {
			p.Count++
		} else {
			p.Skipped++
			why := r.Why.String()
			if w.n[why]++; w.n[why] == 1 {
				w.order = append(w.order, why)
			}
		}
		if len(p.Results) < shownOutcomes {
			p.Results = append(p.Results, r)
		}
	}
	return w
}

func (w skipReasons) lines(p *queue.Plan) {
	for i, why := range w.order {
		if i == 5 {
			addLine(p, "skipped", "… and %s", queue.Plural(len(w.order)-i, "more reason", "more reasons"))
			break
		}
		addLine(p, "skipped", "%d: %s", w.n[why], why)
	}
}

func (w skipReasons) refuseIfNone(p *queue.Plan, none string) error {
	w.lines(p)
	if p.Count == 0 {
		return refuse(p, "skipped", none+": "+strings.Join(w.order[:min(3, len(w.order))], "; "))
	}
	return nil
}

func pastParticiple(a queue.ActionID) string {
	switch a {
	case queue.ActResolve:
		return "closed"
	case queue.ActReopen:
		return "reopened"
	case queue.ActUndoRequeue:
		return "recalled"
	default:
		return "requeued"
	}
}

// mostDeadLetters is the largest number of dead letters of one source that a function of the schema
// takes in one call.
const mostDeadLetters = 100_000

// freeze returns the ids of the dead letters that match any of the request's filters now. An empty
// filter is refused.
func (c *Planner) freeze(ctx context.Context, r queue.Request) (ids []string, err error) {
	s, err := filtersql.Dead(r.Filters()...)
	if err != nil {
		return nil, err
	}
	if s.All() {
		return nil, emptyFilter("code:HTTP_503 endpoint:hooks.acme*")
	}
	for i, b := range [...]*filtersql.Builder{s.Hooks, s.Jobs, s.Events} {
		x := deadLetterSources()[i]
		some, err := pgrow.Column[string](ctx, c.act, "SELECT '"+x.prefix+"' || "+x.id+" FROM "+b.From+b.Clause()+" ORDER BY "+x.id+fmt.Sprintf(" LIMIT %d", mostDeadLetters+1), b.Args...)
		if err != nil {
			return nil, err
		}
		if len(some) > mostDeadLetters {
			do := "narrow the filter"
			switch r.Action {
			case queue.ActRequeue:
				do += fmt.Sprintf("; qtop ops plan, and requeue with --rate, take up to %d", mostFrozen)
			case queue.ActResolve:
				do += fmt.Sprintf("; qtop ops plan --what resolve closes up to %d as abandoned", mostFrozen)
			}
			return nil, queue.NewError(queue.KindUsage, fmt.Sprintf("more than %d dead letters of source %s match", mostDeadLetters, x.name), "--filter", do)
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

func emptyFilter(example string) error {
	return queue.NewError(queue.KindUsage, "an empty filter is refused: it would select everything", "--filter", "write a filter, such as "+example)
}

func applyDeadLetters(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	a, err := c.callAll(ctx, p.Request, false)
	if err != nil {
		return err
	}
	res.AuditID, res.Refused = a.auditID, a.refused
	record(res, a.results)
	return nil
}
