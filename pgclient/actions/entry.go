package actions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

// Planner plans and applies actions on the connections of one client.
type Planner struct {
	client *pgclient.Client
	act    *pgpool.Pool
	probe  Probe
}

// rowQuerier is a pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// entry is one action: its declaration, its preview and its implementation.
type entry struct {
	queue.Action
	// fill sets arguments that the request leaves out to the current values of the row; nil = they
	// get the defaults of the declaration.
	fill  func(context.Context, *Planner, queue.Request) error
	plan  func(context.Context, *Planner, *queue.Plan) error
	apply func(context.Context, *Planner, queue.Plan, *queue.Result) error
	// match counts the rows that a filter selects and returns their names; nil = this action does
	// not select rows by filters.
	match func(context.Context, *Planner, string) (*queue.Match, error)
	// command returns the equivalent command line; nil = the one derived from the declaration.
	command func(queue.Request) string
}

// answer holds the fields that the action functions of the schema return in common.
type answer struct {
	pgscan.Refusal
	Results []struct {
		ID      anyID  `json:"id"`
		Outcome string `json:"outcome"`
		Why     string `json:"why"`
		NewID   anyID  `json:"new_id"`
	} `json:"results"`
	URL       queue.Text `json:"callback_url"` // without parts that may be secret
	ReadAt    *time.Time `json:"at"`
	UpdatedAt *time.Time `json:"updated_at"`
	RevertsAt *time.Time `json:"reverts_at"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// anyID is a number or a text in JSON; null becomes the empty string.
type anyID string

// UnmarshalJSON implements json.Unmarshaler.
func (id *anyID) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' || raw[0] == 'n' {
		return json.Unmarshal(raw, (*string)(id))
	}
	*id = anyID(raw)
	return nil
}

// partsOf returns the parts of a list as an operator writes it: separated by commas, spaces or line breaks.
func partsOf(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// outcomes converts the results, with a prefix for each id (job: or event: of dead letters,
// otherwise "").
func (a answer) outcomes(prefix string) []queue.Outcome {
	out := make([]queue.Outcome, len(a.Results))
	for i, r := range a.Results {
		out[i] = queue.Outcome{ID: prefix + queue.Clean(string(r.ID)).String(), Outcome: r.Outcome, Why: queue.Clean(r.Why), NewID: string(r.NewID)}
	}
	return out
}

// record adds outcomes to a result and counts them as done or skipped.
func record(res *queue.Result, all []queue.Outcome) {
	for _, o := range all {
		if o.Outcome == "skipped" || o.Outcome == "refused" || o.Outcome == "failed" {
			res.Skipped++
		} else {
			res.Done++
		}
	}
	res.Results = append(res.Results, all...)
}

// call calls an action function of the schema.
func (c *Planner) call(ctx context.Context, sql string, args ...any) (answer, error) {
	var a answer
	err := c.act.QueryRow(ctx, sql, args...).Scan(&a)
	return a, err
}

// callLong calls an action function of the schema without a time limit of its statement, and scans
// its answer. The time for locks stays limited.
func (c *Planner) callLong(ctx context.Context, into any, sql string, args ...any) error {
	tx, err := c.act.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('statement_timeout', '0', true)"); err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, sql, args...).Scan(into); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// within returns the context in which an action is planned or applied: that of the caller if the
// action is Long; its statements go through callLong.
func (e entry) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.Long {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, pgpool.ActTimeout)
}

// recordOne records the outcome of an action on a single target.
func recordOne(res *queue.Result, id, done string, a answer) {
	if !a.Refused || res.Done == 0 {
		res.AuditID = a.AuditID
	}
	if a.Refused {
		res.Refused = a.Reason
		res.Skipped++
		res.Results = append(res.Results, queue.Outcome{ID: id, Outcome: "refused", Why: queue.Clean(a.Reason)})
		return
	}
	res.Done++
	res.Results = append(res.Results, queue.Outcome{ID: id, Outcome: done})
}

// applyOne calls an action function for one target and records its answer; done is the outcome if
// it is not refused.
func (c *Planner) applyOne(ctx context.Context, res *queue.Result, id, done, sql string, args ...any) error {
	a, err := c.call(ctx, sql, args...)
	if err == nil {
		recordOne(res, id, done, a)
	}
	return err
}

// found is the answer to a change of one row, with the state in which the change found the row.
type found struct {
	answer
	state string // as Plan.Expect has the state that the preview saw
	since string // what is known about a change since the preview, such as "last by ben"; "" = nothing
	done  string // the outcome if the change is not refused
	of    string // what was changed, in the outcome; "" = the target says it
}

// changed refuses an action because of a change since the preview, and writes that into the audit.
func (c *Planner) changed(ctx context.Context, action, target, actor, reason, why string) (answer, error) {
	a, err := c.call(ctx, "SELECT public.fn_operator_changed($1::text, $2::text, $3::text, $4::text)", action, target, actor, reason)
	a.Reason = why
	return a, err
}

// applySeen makes a change in one transaction and records its outcome. If the change found another
// state than the preview saw, it is rolled back, refused and audited; what names the row in that refusal.
// Every action that replaces a value is applied by it, unless the function of the schema compares.
func (c *Planner) applySeen(ctx context.Context, p queue.Plan, res *queue.Result, id, what string, change func(pgx.Tx) (found, error)) error {
	errChanged := errors.New("changed since the preview")
	var f found
	var action, target, reason string
	err := pgx.BeginFunc(ctx, c.act, func(tx pgx.Tx) (err error) {
		if f, err = change(tx); err != nil || f.Refused || f.state == p.Expect {
			return err
		}
		if err = tx.QueryRow(ctx, "SELECT a.action, a.target, a.reason FROM public.queue_operator_action a WHERE a.id = $1::bigint", f.AuditID).Scan(&action, &target, &reason); err != nil {
			return err
		}
		return errChanged // rolls the change back, with its audit row
	})
	if errors.Is(err, errChanged) {
		why := what + " was changed since the preview" + queue.Choose(f.since == "", "", ", ") + f.since + ": plan the change again"
		f.answer, err = c.changed(ctx, action, target, p.Request.Actor, reason, why)
	}
	if err != nil {
		return err
	}
	recordOne(res, id, f.done, f.answer)
	if !f.Refused {
		res.Results[0].Why = queue.Clean(f.of)
	}
	return nil
}

// applyMany calls an action function for many targets and records the outcome of each.
func (c *Planner) applyMany(ctx context.Context, res *queue.Result, sql string, args ...any) error {
	a, err := c.call(ctx, sql, args...)
	res.AuditID = a.AuditID
	if a.Refused {
		res.Refused = a.Reason
		res.Skipped++
	}
	record(res, a.outcomes(""))
	return err
}

// noWayBack is the value of Plan.Final if the old value is refused now.
const noWayBack = "the old value is refused now, so it cannot be set again"

// setBack adds the command that sets the old values again.
func setBack(p *queue.Plan, old map[string]string) {
	if p.Undo = Registry().BackCommand(p.Request, old); p.Undo == "" {
		p.Final = noWayBack
	}
}

// refuse marks the plan as refused, with the rule's code and the reason.
func refuse(p *queue.Plan, rule, why string) error {
	p.Refused, p.Rule = why, rule
	return nil
}

// meant returns "; did you mean X?", where X is the existing id that is most like a misspelt one;
// of is the kind of ids as in queue.Targets.Of. It returns "" if none is similar or the login may
// not read the ids.
func (c *Planner) meant(ctx context.Context, of, typed string) string {
	near := c.client.Nearest(ctx, of, typed)
	return queue.Choose(near == "", "", "; did you mean "+near+"?")
}

// refuseNamed refuses a plan with the answer to its first target. If there is no such row, the reason
// names the id that is most like the target; of is the kind of ids.
func (c *Planner) refuseNamed(ctx context.Context, p *queue.Plan, of string, r pgscan.Refusal) error {
	if r.Rule == "not_found" {
		r.Reason += c.meant(ctx, of, p.Request.Targets[0])
	}
	return refuse(p, r.Rule, r.Reason)
}

// verdict adds the outcome of one target to the plan; if it is refused, the reason becomes a line
// with this label.
func verdict(p *queue.Plan, label string, o queue.Outcome) (refused bool) {
	p.Results = append(p.Results, o)
	if refused = o.Outcome == "refused"; refused {
		p.Skipped++
		addLine(p, label, "%s", o.Why)
	} else {
		p.Count++
	}
	return refused
}

// addLine adds a labelled line to a plan.
func addLine(p *queue.Plan, label, format string, args ...any) {
	p.Lines = append(p.Lines, line(label, format, args...))
}

func line(label, format string, args ...any) queue.PlanLine {
	return queue.PlanLine{Label: label, Value: queue.Clean(fmt.Sprintf(format, args...))}
}
