package pgclient

// This file plans and applies what is done to dead letters. The dry run of the
// schema's function is the preview: one predicate for both.

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

// shownOutcomes bounds the per-id outcomes that a plan carries to a screen.
const shownOutcomes = 1000

// letterCall is the statement of an action; $4 says whether it is a dry run.
func letterCall(r queue.Request) (string, []any) {
	switch r.Action {
	case queue.ActResolve:
		return "SELECT public.fn_dead_letter_resolve($1, $5, $3, $2, $4)", []any{r.Args["resolution"]}
	case queue.ActReopen:
		return "SELECT public.fn_dead_letter_reopen($1, $2, $3, $4)", nil
	case queue.ActUndoRequeue:
		return "SELECT public.fn_dead_letter_requeue_undo($1, $2, $3, $4)", nil
	default:
		return "SELECT public.fn_dead_letter_requeue($1, $2, $3, $4)", nil
	}
}

func (c *Client) letters(ctx context.Context, r queue.Request, dry bool) (answer, error) {
	ids := make([]int64, 0, len(r.Targets))
	for _, t := range r.Targets {
		id, err := webhookID(t)
		if err != nil {
			return answer{}, err
		}
		ids = append(ids, id)
	}
	sql, extra := letterCall(r)
	return c.ask(ctx, sql, append([]any{ids, r.Actor, r.Reason, dry}, extra...)...)
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
	if a.Refused {
		p.Refused, p.Rule = a.Reason, a.Rule
		return nil
	}
	skipped := map[string]int{}
	var order []string
	for _, r := range a.Results {
		if strings.HasPrefix(r.Outcome, "would_") {
			p.Count++
		} else {
			p.Skipped++
			if skipped[r.Why]++; skipped[r.Why] == 1 {
				order = append(order, r.Why)
			}
		}
		if len(p.Results) < shownOutcomes {
			p.Results = append(p.Results, queue.Outcome{ID: strconv.FormatInt(r.ID, 10), Outcome: r.Outcome, Why: queue.Clean(r.Why)})
		}
	}
	p.Lines = append(p.Lines, line("dead letters", "%d of %d", p.Count, len(a.Results)))
	if err := c.breakdown(ctx, p); err != nil {
		return err
	}
	for i, why := range order {
		if i == 5 {
			p.Lines = append(p.Lines, line("skipped", "+%d more reasons", len(order)-i))
			break
		}
		p.Lines = append(p.Lines, line("skipped", "%d: %s", skipped[why], why))
	}
	if p.Count == 0 {
		p.Refused, p.Rule = "none of them can be "+pastOf(p.Request.Action)+": "+strings.Join(order[:min(3, len(order))], "; "), "skipped"
	}
	return nil
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
	b, f, err := deadWhere(filter)
	if err != nil {
		return nil, err
	}
	if f.Empty() {
		return nil, &queue.Error{
			Kind: queue.KindUsage, What: queue.Clean("an empty filter selects everything"), Where: queue.Clean("--filter"),
			Do: queue.Clean("say what you mean, such as code:HTTP_503 endpoint:hooks.acme*"),
		}
	}
	rows, err := c.act.Query(ctx, "SELECT d.id::text FROM "+deadFrom+b.clause()+" ORDER BY d.id", b.args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// breakdown says where they would go: per endpoint and code, with how the
// endpoint has been lately.
func (c *Client) breakdown(ctx context.Context, p *queue.Plan) error {
	rows, err := c.act.Query(ctx, `SELECT COALESCE(v.endpoint, '(none)'), d.final_error_code, count(*), max(v.gate),
		to_char(max(v.last_success_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI"Z"'), max(g.requeue_generation)
		FROM public.dead_letters d JOIN public.v_webhook_endpoint v ON v.subscription_id = d.subscription_id
		JOIN public.webhook_delivery_sagas g ON g.id = d.saga_id
		WHERE d.id = ANY ($1::bigint[]) GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 9`, p.Request.Targets)
	if err != nil {
		return err
	}
	type part struct {
		endpoint, code, gate string
		n                    int64
		success              *string
		generation           int
	}
	parts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (part, error) {
		var x part
		err := row.Scan(&x.endpoint, &x.code, &x.n, &x.gate, &x.success, &x.generation)
		return x, err
	})
	if err != nil {
		return err
	}
	for i, x := range parts {
		if i == 8 {
			p.Lines = append(p.Lines, line("to", "and more endpoints"))
			break
		}
		last := "never succeeded"
		if x.success != nil {
			last = "last success " + *x.success
		}
		again := ""
		if x.generation > 0 {
			again = fmt.Sprintf(", requeued %d times before", x.generation)
		}
		p.Lines = append(p.Lines, line("to", "%d × %s %s (gate %s, %s%s)", x.n, x.endpoint, x.code, x.gate, last, again))
	}
	return nil
}

func applyLetters(ctx context.Context, c *Client, p queue.Plan, res *queue.Result) error {
	a, err := c.letters(ctx, p.Request, false)
	if err != nil {
		return err
	}
	res.AuditID = a.AuditID
	if a.Refused {
		res.Refused = a.Reason
		return nil
	}
	for _, r := range a.Results {
		o := queue.Outcome{ID: strconv.FormatInt(r.ID, 10), Outcome: r.Outcome, Why: queue.Clean(r.Why)}
		if r.NewID != nil {
			o.NewID = strconv.FormatInt(*r.NewID, 10)
		}
		if r.Outcome == "skipped" {
			res.Skipped++
		} else {
			res.Done++
		}
		res.Results = append(res.Results, o)
	}
	return nil
}
