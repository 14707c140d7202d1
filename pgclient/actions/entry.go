package actions

// This file is what the declaration of an action consists of, and what all of them
// plan and apply with.

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

// Planner plans and applies on a client's connections.
type Planner struct {
	client *pgclient.Client
	act    *pgpool.Pool
}

// entry is one action: what it says of itself, its preview and its doing.
type entry struct {
	queue.Action
	// fill gives what a request leaves out the value that stands; nil = the defaults.
	fill  func(context.Context, *Planner, queue.Request) error
	plan  func(context.Context, *Planner, *queue.Plan) error
	apply func(context.Context, *Planner, queue.Plan, *queue.Result) error
	// command is the headless form where it depends on more than the entry; nil = as derived.
	command func(queue.Request) string
}

// answer is the common part of what the action functions return.
type answer struct {
	pgscan.Refusal
	Results []struct {
		ID      anyID  `json:"id"`
		Outcome string `json:"outcome"`
		Why     string `json:"why"`
		NewID   anyID  `json:"new_id"`
	} `json:"results"`
	ReadAt    *time.Time `json:"at"`
	UpdatedAt *time.Time `json:"updated_at"`
	RevertsAt *time.Time `json:"reverts_at"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// anyID is a number or a uuid, as JSON has it; null is the empty one.
type anyID string

// UnmarshalJSON implements json.Unmarshaler.
func (id *anyID) UnmarshalJSON(raw []byte) error {
	*id = anyID(strings.Trim(string(raw), `"`))
	if *id == "null" {
		*id = ""
	}
	return nil
}

// outcomes are the results per id; a prefix tells the source of those that need
// one.
func (a answer) outcomes(prefix string) []queue.Outcome {
	out := make([]queue.Outcome, len(a.Results))
	for i, r := range a.Results {
		out[i] = queue.Outcome{ID: prefix + string(r.ID), Outcome: r.Outcome, Why: queue.Clean(r.Why), NewID: string(r.NewID)}
	}
	return out
}

// record counts outcomes and adds them.
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

// ask runs an action function.
func (c *Planner) ask(ctx context.Context, sql string, args ...any) (answer, error) {
	var a answer
	err := c.act.QueryRow(ctx, sql, args...).Scan(&a)
	return a, err
}

// one records the outcome of an action on a single thing.
func one(res *queue.Result, id, done string, a answer) {
	res.AuditID = a.AuditID
	if a.Refused {
		res.Refused = a.Reason
		res.Skipped++
		res.Results = append(res.Results, queue.Outcome{ID: id, Outcome: "refused", Why: queue.Clean(a.Reason)})
		return
	}
	res.Done++
	res.Results = append(res.Results, queue.Outcome{ID: id, Outcome: done})
}

// does asks an action function about one thing, and records what it answers.
func (c *Planner) does(ctx context.Context, res *queue.Result, id, done, sql string, args ...any) error {
	a, err := c.ask(ctx, sql, args...)
	if err == nil {
		one(res, id, done, a)
	}
	return err
}

// doesMany asks an action function about many things, and records what it answers for each.
func (c *Planner) doesMany(ctx context.Context, res *queue.Result, sql string, args ...any) error {
	a, err := c.ask(ctx, sql, args...)
	res.AuditID = a.AuditID
	if a.Refused {
		res.Refused = a.Reason
		res.Skipped++
	}
	record(res, a.outcomes(""))
	return err
}

// refuse ends a plan with why it cannot be done.
func refuse(p *queue.Plan, rule, why string) error {
	p.Refused, p.Rule = why, rule
	return nil
}

// verdict adds the outcome of one target; one that is refused stands with its reason in the plan.
func verdict(p *queue.Plan, label string, o queue.Outcome) (refused bool) {
	p.Results = append(p.Results, o)
	if refused = o.Outcome == "refused"; refused {
		p.Skipped++
		say(p, label, "%s", o.Why)
	} else {
		p.Count++
	}
	return refused
}

// say adds a line to a plan.
func say(p *queue.Plan, label, format string, args ...any) {
	p.Lines = append(p.Lines, line(label, format, args...))
}

func line(label, format string, args ...any) queue.PlanLine {
	return queue.PlanLine{Label: label, Value: queue.Clean(fmt.Sprintf(format, args...))}
}
