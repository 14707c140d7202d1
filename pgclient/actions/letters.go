package actions

// This file plans and applies what is done to dead letters of all sources. The
// dry run of the schema's functions is the preview: one predicate for both.

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/queue"
)

func letterActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActRequeue, Words: "requeue", Key: "R", Panes: []queue.PaneID{queue.PaneDead}, Verb: "Requeue", Undo: "qtop undo ID… (until the first attempt; an event stays routed)",
			Help: "make one new saga or job per dead letter, or route its event once more",
			Noun: "dead letter", Targets: queue.Targets{Name: "ID", Many: true, Instead: "filter", List: "dlq"},
			Danger: queue.DangerMany, Function: "public.fn_dead_letter_requeue(bigint[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		}, plan: planLetters, apply: applyLetters},
		{Action: queue.Action{
			ID: queue.ActResolve, Words: "resolve", Key: "C", Panes: []queue.PaneID{queue.PaneDead}, Verb: "Close",
			Help: "close a dead letter with a resolution, without sending it",
			Noun: "dead letter", Opposite: queue.ActReopen, Targets: queue.Targets{Name: "ID", Many: true, Instead: "filter", List: "dlq"},
			Danger: queue.DangerMany, Function: "public.fn_dead_letter_resolve(bigint[],text,text,text,boolean)", Role: "dead_letter_operator", Reason: true,
			Args: []queue.Arg{{
				Name: "resolution", Label: "Resolution", Default: "abandoned", Required: true,
				Choices: []string{"abandoned", "delivered_otherwise", "duplicate"}, Help: "why it need not be sent",
			}},
		}, plan: planLetters, apply: applyLetters},
		{Action: queue.Action{
			ID: queue.ActReopen, Words: "reopen", Panes: []queue.PaneID{queue.PaneDead}, Verb: "Reopen",
			Help: "open a closed dead letter again",
			Noun: "dead letter", Opposite: queue.ActResolve, Targets: queue.Targets{Name: "ID", Many: true},
			Danger: queue.DangerMany, Function: "public.fn_dead_letter_reopen(bigint[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		}, plan: planLetters, apply: applyLetters},
		{Action: queue.Action{
			ID: queue.ActUndoRequeue, Words: "undo", Key: "U", Panes: []queue.PaneID{queue.PaneDead}, Verb: "Undo requeue of",
			Help: "recall a requeued letter whose saga has no job yet",
			Noun: "dead letter", Opposite: queue.ActRequeue, Targets: queue.Targets{Name: "ID", Many: true},
			Danger: queue.DangerMany, Function: "public.fn_dead_letter_requeue_undo(bigint[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		}, plan: planLetters, apply: applyLetters},
	}
}

// shownOutcomes bounds the per-id outcomes that a plan carries to a screen.
const shownOutcomes = 1000

// Clauses for the letters that were named one by one.
const (
	givenHooks = " WHERE d.id = ANY ($1::bigint[])"
	givenJobs  = " WHERE d.dead_letter_id = ANY ($1::uuid[])"

	givenEvents = givenJobs
)

// letterCall is the statement of an action on the letters of each source, and what
// follows its four arguments; $4 says whether it is a dry run.
type letterCall struct {
	hooks, jobs, events string // functions; "" = there is no such thing for this source
	order               string // of the arguments
	hookArgs, otherArgs []any
}

func letterCallOf(r queue.Request) letterCall {
	const usual = "($1, $2, $3, $4)"
	switch r.Action {
	case queue.ActResolve:
		// The sources say the same with different words.
		hook, other := r.Args["resolution"], r.Args["resolution"]
		if hook == "done_otherwise" || hook == "delivered_otherwise" {
			hook, other = "delivered_otherwise", "done_otherwise"
		}
		return letterCall{
			"fn_dead_letter_resolve", "fn_job_dead_letter_resolve", "fn_iu_route_dead_letter_resolve", "($1, $5, $3, $2, $4)",
			[]any{hook}, []any{other},
		}
	case queue.ActReopen:
		return letterCall{"fn_dead_letter_reopen", "fn_job_dead_letter_reopen", "fn_iu_route_dead_letter_reopen", usual, nil, nil}
	case queue.ActUndoRequeue:
		return letterCall{"fn_dead_letter_requeue_undo", "fn_job_dead_letter_replay_undo", "", usual, nil, nil}
	default:
		return letterCall{"fn_dead_letter_requeue", "fn_job_dead_letter_replay", "fn_iu_route_dead_letter_replay", usual, nil, nil}
	}
}

// letterSet is ids by their source.
type letterSet struct {
	hooks        []int64
	jobs, events []string
}

// letterIDs sorts ids by their source.
func letterIDs(targets []string) (s letterSet, err error) {
	s = letterSet{[]int64{}, []string{}, []string{}}
	for _, t := range targets {
		var id string
		var n int64
		switch {
		case parseid.IsJobLetter(t):
			id, err = parseid.UUID(t, "job dead letter", parseid.JobPrefix)
			s.jobs = append(s.jobs, id)
		case parseid.IsEventLetter(t):
			id, err = parseid.UUID(t, "event dead letter", parseid.EventPrefix)
			s.events = append(s.events, id)
		default:
			n, err = parseid.Webhook(t)
			s.hooks = append(s.hooks, n)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// lettersAnswer is what the functions together answered.
type lettersAnswer struct {
	results []queue.Outcome
	auditID int64  // of the last row written
	refused string // set when nothing at all could be done
	rule    string
}

// letters runs the functions of all sources in one transaction: the request is
// done, or it is not. One flag governs all, so the first refusal is the answer;
// should it change between two of them, all is taken back.
func (c *Planner) letters(ctx context.Context, r queue.Request, dry bool) (lettersAnswer, error) {
	ids, err := letterIDs(r.Targets)
	if err != nil {
		return lettersAnswer{}, err
	}
	call := letterCallOf(r)
	errRefused := errors.New("refused")
	var out lettersAnswer
	ask := func(tx pgx.Tx, fn, prefix string, ids any, extra []any) error {
		if out.refused != "" {
			return nil
		}
		var a answer
		if err := tx.QueryRow(ctx, "SELECT public."+fn+call.order, append([]any{ids, r.Actor, r.Reason, dry}, extra...)...).Scan(&a); err != nil {
			return err
		}
		if a.Refused {
			begun := len(out.results) > 0
			out = lettersAnswer{refused: a.Reason, rule: a.Rule, auditID: a.AuditID}
			if begun {
				out.auditID = 0
				return errRefused
			}
			return nil
		}
		out.auditID = a.AuditID
		for _, o := range a.outcomes(prefix) {
			o.Outcome = oneWord(o.Outcome)
			out.results = append(out.results, o)
		}
		return nil
	}
	err = pgx.BeginFunc(ctx, c.act, func(tx pgx.Tx) error {
		if len(ids.hooks) > 0 {
			if err := ask(tx, call.hooks, "", ids.hooks, call.hookArgs); err != nil {
				return err
			}
		}
		if len(ids.jobs) > 0 {
			if err := ask(tx, call.jobs, parseid.JobPrefix, ids.jobs, call.otherArgs); err != nil {
				return err
			}
		}
		if len(ids.events) == 0 {
			return nil
		}
		if call.events == "" {
			if out.refused == "" {
				out.results = append(out.results, stayRouted(ids.events)...)
			}
			return nil
		}
		return ask(tx, call.events, parseid.EventPrefix, ids.events, call.otherArgs)
	})
	if errors.Is(err, errRefused) {
		err = nil
	}
	return out, err
}

// stayRouted answers for events that were routed again: an attempt is what a
// recipient reads, and cannot be unread.
func stayRouted(events []string) (out []queue.Outcome) {
	for _, id := range events {
		out = append(out, queue.Outcome{ID: queue.EventLetter(id), Outcome: "skipped", Why: queue.Clean("what was routed cannot be taken back: its recipients have it")})
	}
	return out
}

// oneWord is the outcome as a request says it, whatever the source: replaying
// is what requeueing is called for a job.
func oneWord(outcome string) string {
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

func planLetters(ctx context.Context, c *Planner, p *queue.Plan) error {
	if len(p.Request.Targets) == 0 {
		ids, err := c.freeze(ctx, p.Request.Filter)
		if err != nil {
			return err
		}
		p.Request.Targets = ids
	}
	if len(p.Request.Targets) == 0 {
		p.Refused, p.Rule = "nothing matches", "empty"
		return nil
	}
	a, err := c.letters(ctx, p.Request, true)
	if err != nil {
		return err
	}
	if a.refused != "" {
		p.Refused, p.Rule = a.refused, a.rule
		return nil
	}
	whys := tally(p, a.results)
	p.Lines = append(p.Lines, line("dead letters", "%d of %d", p.Count, len(a.results)))
	ids, err := letterIDs(p.Request.Targets)
	if err != nil {
		return err
	}
	var sources []string
	if len(ids.hooks) > 0 {
		sources = append(sources, "webhooks")
		if err := c.breakdown(ctx, p, givenHooks, ids.hooks); err != nil {
			return err
		}
	}
	if len(ids.jobs) > 0 {
		sources = append(sources, "jobs")
		if err := c.jobBreakdown(ctx, p, givenJobs, ids.jobs); err != nil {
			return err
		}
	}
	if len(ids.events) > 0 {
		sources = append(sources, "events")
		if err := c.eventBreakdown(ctx, p, givenEvents, ids.events); err != nil {
			return err
		}
	}
	if len(sources) > 1 {
		p.Lines = append(p.Lines, line("audit", "%s rows, one for the %s; the result names the last", []string{"two", "three"}[len(sources)-2], strings.Join(sources, " and one for the ")))
	}
	whys.lines(p)
	if p.Count == 0 {
		p.Refused, p.Rule = whys.refusal("none of them can be "+pastOf(p.Request.Action)), "skipped"
	}
	return nil
}

// whys are the reasons for which ids are left out.
type whys struct {
	order []string
	n     map[string]int
}

// tally counts what a dry run would do, keeps the first outcomes for a screen
// and groups the reasons of the rest.
func tally(p *queue.Plan, all []queue.Outcome) whys {
	w := whys{n: map[string]int{}}
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

func (w whys) lines(p *queue.Plan) {
	for i, why := range w.order {
		if i == 5 {
			p.Lines = append(p.Lines, line("skipped", "+%d more reasons", len(w.order)-i))
			break
		}
		p.Lines = append(p.Lines, line("skipped", "%d: %s", w.n[why], why))
	}
}

func (w whys) refusal(what string) string {
	return what + ": " + strings.Join(w.order[:min(3, len(w.order))], "; ")
}

func pastOf(a queue.ActionID) string {
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

// freeze turns a filter into the ids that match now; an empty one is refused.
func (c *Planner) freeze(ctx context.Context, filter string) ([]string, error) {
	s, err := filtersql.Dead(filter)
	if err != nil {
		return nil, err
	}
	if s.Filter.Empty() {
		return nil, emptyFilter("code:HTTP_503 endpoint:hooks.acme*")
	}
	rows, err := c.act.Query(ctx, "SELECT d.id::text FROM "+filtersql.DeadFrom+s.Hooks.Clause()+" ORDER BY d.id", s.Hooks.Args...)
	if err != nil {
		return nil, err
	}
	hooks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	rows, err = c.act.Query(ctx, "SELECT 'job:' || d.dead_letter_id FROM "+filtersql.DeadJobFrom+s.Jobs.Clause()+" ORDER BY d.dead_letter_id", s.Jobs.Args...)
	if err != nil {
		return nil, err
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	rows, err = c.act.Query(ctx, "SELECT 'event:' || d.dead_letter_id FROM "+filtersql.DeadEventFrom+s.Events.Clause()+" ORDER BY d.dead_letter_id", s.Events.Args...)
	if err != nil {
		return nil, err
	}
	events, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return append(append(hooks, jobs...), events...), err
}

func emptyFilter(example string) error {
	return &queue.Error{
		Kind: queue.KindUsage, What: queue.Clean("an empty filter selects everything"), Where: queue.Clean("--filter"),
		Do: queue.Clean("say what you mean, such as " + example),
	}
}

func applyLetters(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	a, err := c.letters(ctx, p.Request, false)
	if err != nil {
		return err
	}
	res.AuditID, res.Refused = a.auditID, a.refused
	record(res, a.results)
	return nil
}
