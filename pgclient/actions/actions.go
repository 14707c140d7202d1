// Package actions plans and applies every change that an operator can make: requeue,
// cancel, suspend, set a flag, and so on. Start with [New], [Planner.Plan] and
// [Planner.Apply]; [Registry] lists the actions.
//
// An action runs in two steps:
//
//  1. Plan reads the current rows and returns a preview: what would change, what is refused and
//     why, and the equivalent command line. Nothing is written.
//  2. Apply makes the change. It is conditional on what Plan saw (Plan.Expect): if the row changed
//     since, the change is refused.
//
// Each action calls a function of the schema, which checks the caller's right, changes the rows
// and writes the audit row in one transaction. Where that function has a dry run, Plan calls it,
// so that preview and change select rows by the same conditions.
package actions

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/queue"
)

// New returns a planner that uses the client's connection pool for actions. Actions that send a
// test request are refused until Probing sets the function that sends it.
func New(c *pgclient.Client) *Planner { return &Planner{client: c, act: c.Act()} }

// Probing sets the function that sends test requests of webhooks.
func (c *Planner) Probing(p Probe) *Planner {
	c.probe = p
	return c
}

func entries() []entry {
	return slices.Concat(alertActions(), deadLetterActions(), revealActions(), eraseActions(), flagActions(), executorActions(), subscribeActions(), jobActions(), bulkActions(), endpointActions(), webhookActions(), notificationActions(), eventSubscriptionActions(), schedulerActions(), markActions(), recountActions(), quarantineActions(), routeActions(), eventTypeActions(), producerActions(), sessionActions(), adoptActions(), environmentActions(), loopActions())
}

// Registry returns every action, in the order in which the help lists them.
func Registry() queue.Registry {
	var r queue.Registry
	for _, e := range entries() {
		r = append(r, e.Action)
	}
	return r
}

func find(id queue.ActionID) (entry, error) {
	all := entries()
	if i := slices.IndexFunc(all, func(e entry) bool { return e.ID == id && e.plan != nil }); i >= 0 {
		return all[i], nil
	}
	return entry{}, &queue.Error{Kind: queue.KindUsage, What: queue.Clean("this version of qtop has no action " + strconv.Quote(string(id)))}
}

// Actions returns Registry(). Planner has this method because tui.Store, the interface of the
// console, asks for it.
func (c *Planner) Actions() queue.Registry { return Registry() }

// Plan returns a preview of what the request would do. It changes nothing. A request
// that cannot be carried out gives a plan with Refused and Rule set, not an error.
func (c *Planner) Plan(ctx context.Context, r queue.Request) (queue.Plan, error) {
	e, err := find(r.Action)
	if err != nil {
		return queue.Plan{}, err
	}
	if r.Actor == "" {
		r.Actor = c.client.Actor()
	}
	if err := queue.CheckActor(r.Actor); err != nil {
		return queue.Plan{}, err
	}
	if r.Args = maps.Clone(r.Args); r.Args == nil { // what fill adds is not part of the request that another plan is made of
		r.Args = map[string]string{}
	}
	if t, n := e.Targets, len(r.Targets); t.Name != "" && e.Danger != queue.DangerDatabase && (n == 0 && t.Instead == "" || n > 1 && !t.Many) {
		return queue.Plan{}, queue.NewError(queue.KindUsage, fmt.Sprintf("%s needs one %s, not %d", e.Words, t.Name, n), "", "see qtop "+e.Words+" --help")
	}
	for _, target := range r.Targets {
		if err := queue.CheckUTF8(cmp.Or(e.Targets.Name, "ID"), target); err != nil {
			return queue.Plan{}, err
		}
	}
	started := time.Now()
	ctx, cancel := e.within(ctx)
	defer cancel()
	end := c.client.Watch(ctx, "act")
	if e.fill != nil {
		err = e.fill(ctx, c, r)
	}
	if err := e.Complete(r.Args); err != nil {
		return queue.Plan{}, end(err)
	}
	if e.Reason {
		if err := queue.CheckReason(r.Reason); err != nil {
			return queue.Plan{}, end(err)
		}
	}
	p := queue.Plan{Request: r, ReadAt: started}
	if err == nil && e.Function != "" { // a preview of what the login may not do would promise it, and may be long in the making
		err = c.mayCall(ctx, e)
	}
	if err == nil {
		err = e.plan(ctx, c, &p)
	}
	if err == nil && e.match != nil && r.Within != "" {
		if p.Match, err = e.match(ctx, c, r.Within); p.Match != nil && p.Match.Count <= p.Count+p.Skipped {
			p.Match = nil // the selection already has every row that matches
		}
	}
	err = end(pgerror.InWords(pgerror.Translate(err), e.Args...))
	p.Took = time.Since(started)
	if done, _ := find(p.Request.Action); done.command != nil { // Plan may have replaced the action of the request (see planEnabled)
		p.Command = done.command(p.Request)
	} else {
		p.Command = done.Command(p.Request)
	}
	switch {
	case p.Refused != "":
		p.Undo = ""
	case p.Undo == "":
		p.Undo = Registry().UndoCommand(p.Request)
	}
	c.note(ctx, err)
	return p, err
}

// note records for Link whether a call reached the server. A call that ran out of its time is not
// counted: how long an action takes depends on the number of rows, so it does not prove that the server
// is away.
func (c *Planner) note(ctx context.Context, err error) {
	if ctx.Err() == nil {
		c.client.Note(ctx, err)
	}
}

// mayCall returns an error if this login may not execute the function of an action. A right that the
// session has is not asked for again; one that it lacks may have been granted since.
func (c *Planner) mayCall(ctx context.Context, e entry) error {
	if c.client.May(e.ID) {
		return nil
	}
	var may *bool // nil: the installed schema has no such function
	if err := c.act.QueryRow(ctx, "SELECT has_function_privilege(to_regprocedure($1), 'EXECUTE')", e.Function).Scan(&may); err != nil || may == nil || *may {
		return err
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(e.Function, "public."), "(")
	login, do, err := c.act.Lacks(ctx, name)
	if err != nil {
		return err
	}
	return queue.NewError(queue.KindPermission, "login "+login+" may not run qtop "+e.Words, "", cmp.Or(do, "ask for the role "+e.Role)+"; see qtop doctor")
}

// Apply carries out a plan that Plan returned. If the plan was refused, or if the rows changed
// since it was made, nothing is changed, and the result says why in Refused; that is no error. If
// only some of the targets are refused, Refused is empty, and Results says which and why.
func (c *Planner) Apply(ctx context.Context, p queue.Plan) (queue.Result, error) {
	res := queue.Result{Action: p.Request.Action, Plan: p.Lines}
	e, err := find(p.Request.Action)
	if err != nil {
		return res, err
	}
	if p.Refused != "" {
		res.Refused = p.Refused
		return res, nil
	}
	ctx, cancel := e.within(ctx)
	defer cancel()
	end := c.client.Watch(ctx, "act")
	err = e.apply(ctx, c, p, &res)
	res.Intact = err != nil && res.Done == 0 && !pgerror.MayHaveCommitted(err)
	err = end(pgerror.InWords(pgerror.Translate(err), e.Args...))
	if res.Done > 0 { // the refusals of single targets are in Results
		res.Refused = ""
	}
	c.note(ctx, err)
	return res, err
}
