package pgclient

// This file plans and applies what is done to dead letters of both sources. The
// dry run of the schema's functions is the preview: one predicate for both.

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

// shownOutcomes bounds the per-id outcomes that a plan carries to a screen.
const shownOutcomes = 1000

// Queries for the letters that were named one by one.
const (
	givenHooks = "SELECT unnest($1::bigint[])"
	givenJobs  = "SELECT unnest($1::uuid[])"
)

// letterCall is the statement of an action on webhook letters and on those of
// jobs; $4 says whether it is a dry run.
func letterCall(r queue.Request) (hooks, jobs string, hookArgs, jobArgs []any) {
	switch r.Action {
	case queue.ActResolve:
		// The two sources say the same with different words.
		hook, job := r.Args["resolution"], r.Args["resolution"]
		if hook == "done_otherwise" || hook == "delivered_otherwise" {
			hook, job = "delivered_otherwise", "done_otherwise"
		}
		return "SELECT public.fn_dead_letter_resolve($1, $5, $3, $2, $4)", "SELECT public.fn_job_dead_letter_resolve($1, $5, $3, $2, $4)",
			[]any{hook}, []any{job}
	case queue.ActReopen:
		return "SELECT public.fn_dead_letter_reopen($1, $2, $3, $4)", "SELECT public.fn_job_dead_letter_reopen($1, $2, $3, $4)", nil, nil
	case queue.ActUndoRequeue:
		return "SELECT public.fn_dead_letter_requeue_undo($1, $2, $3, $4)", "SELECT public.fn_job_dead_letter_replay_undo($1, $2, $3, $4)", nil, nil
	default:
		return "SELECT public.fn_dead_letter_requeue($1, $2, $3, $4)", "SELECT public.fn_job_dead_letter_replay($1, $2, $3, $4)", nil, nil
	}
}

// letterIDs sorts ids by their source.
func letterIDs(targets []string) (hooks []int64, jobs []string, err error) {
	hooks, jobs = []int64{}, []string{}
	for _, t := range targets {
		if isJobLetter(t) {
			id, err := uuidOf(t, "job dead letter", jobPrefix)
			if err != nil {
				return nil, nil, err
			}
			jobs = append(jobs, id)
			continue
		}
		id, err := webhookID(t)
		if err != nil {
			return nil, nil, err
		}
		hooks = append(hooks, id)
	}
	return hooks, jobs, nil
}

// lettersAnswer is what both functions together answered.
type lettersAnswer struct {
	results []queue.Outcome
	auditID int64  // of the last row written
	refused string // set when nothing at all could be done
	rule    string
}

// letters runs the functions of both sources in one transaction: the request is
// done, or it is not. One flag governs both, so the first refusal is the answer;
// should it change between the two, all is taken back.
func (c *Client) letters(ctx context.Context, r queue.Request, dry bool) (lettersAnswer, error) {
	hooks, jobs, err := letterIDs(r.Targets)
	if err != nil {
		return lettersAnswer{}, err
	}
	hookSQL, jobSQL, hookArgs, jobArgs := letterCall(r)
	errRefused := errors.New("refused")
	var out lettersAnswer
	ask := func(tx pgx.Tx, sql, prefix string, ids any, extra []any) error {
		var a answer
		if err := tx.QueryRow(ctx, sql, append([]any{ids, r.Actor, r.Reason, dry}, extra...)...).Scan(&a); err != nil {
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
		if len(hooks) > 0 {
			if err := ask(tx, hookSQL, "", hooks, hookArgs); err != nil || out.refused != "" {
				return err
			}
		}
		if len(jobs) == 0 {
			return nil
		}
		return ask(tx, jobSQL, jobPrefix, jobs, jobArgs)
	})
	if errors.Is(err, errRefused) {
		err = nil
	}
	return out, err
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

func planLetters(ctx context.Context, c *Client, p *queue.Plan) error {
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
	hooks, jobs, err := letterIDs(p.Request.Targets)
	if err != nil {
		return err
	}
	if len(hooks) > 0 {
		if err := c.breakdown(ctx, p, givenHooks, hooks); err != nil {
			return err
		}
	}
	if len(jobs) > 0 {
		if err := c.jobBreakdown(ctx, p, givenJobs, jobs); err != nil {
			return err
		}
	}
	if len(hooks) > 0 && len(jobs) > 0 {
		p.Lines = append(p.Lines, line("audit", "two rows, one for the webhooks and one for the jobs; the result names the last"))
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
func (c *Client) freeze(ctx context.Context, filter string) ([]string, error) {
	s, err := deadWhere(filter)
	if err != nil {
		return nil, err
	}
	if s.filter.Empty() {
		return nil, emptyFilter("code:HTTP_503 endpoint:hooks.acme*")
	}
	rows, err := c.act.Query(ctx, "SELECT d.id::text FROM "+deadFrom+s.hooks.clause()+" ORDER BY d.id", s.hooks.args...)
	if err != nil {
		return nil, err
	}
	hooks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	rows, err = c.act.Query(ctx, "SELECT 'job:' || d.dead_letter_id FROM "+deadJobFrom+s.jobs.clause()+" ORDER BY d.dead_letter_id", s.jobs.args...)
	if err != nil {
		return nil, err
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return append(hooks, jobs...), err
}

func emptyFilter(example string) error {
	return &queue.Error{
		Kind: queue.KindUsage, What: queue.Clean("an empty filter selects everything"), Where: queue.Clean("--filter"),
		Do: queue.Clean("say what you mean, such as " + example),
	}
}

func applyLetters(ctx context.Context, c *Client, p queue.Plan, res *queue.Result) error {
	a, err := c.letters(ctx, p.Request, false)
	if err != nil {
		return err
	}
	res.AuditID, res.Refused = a.auditID, a.refused
	record(res, a.results)
	return nil
}
