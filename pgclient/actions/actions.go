// Package actions is how anything changes: a request is planned (a fresh read, an
// exact preview), then applied by the same code with what the plan saw as the
// condition. The functions of the schema do the work, check the right and write
// the audit row in their own transaction.
package actions

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// New acts through a client.
func New(c *pgclient.Client) *Planner { return &Planner{client: c, act: c.Act()} }

func entries() []entry {
	return slices.Concat(alertActions(), letterActions(), revealActions(), eraseActions(), flagActions(), executorActions(), subscribeActions(), jobActions(), bulkActions(), endpointActions(), webhookActions(), notificationActions(), ruleActions(), schedulerActions(), markActions(), recountActions(), quarantineActions(), routeActions(), eventTypeActions(), producerActions(), sessionActions(), adoptActions(), environmentActions(), loopActions())
}

// Registry is every action, in the order of the help.
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
	return entry{}, &queue.Error{Kind: queue.KindUsage, What: queue.Clean("there is no action " + string(id))}
}

// Actions is the registry, for a console.
func (c *Planner) Actions() queue.Registry { return Registry() }

// Plan reads what the request would do. It changes nothing.
func (c *Planner) Plan(ctx context.Context, r queue.Request) (queue.Plan, error) {
	e, err := find(r.Action)
	if err != nil {
		return queue.Plan{}, err
	}
	if r.Actor == "" {
		r.Actor = c.client.Actor()
	}
	if r.Args == nil {
		r.Args = map[string]string{}
	}
	if t, n := e.Targets, len(r.Targets); t.Name != "" && e.Danger != queue.DangerDatabase && (n == 0 && t.Instead == "" || n > 1 && !t.Many) {
		return queue.Plan{}, queue.NewError(queue.KindUsage, "name one "+t.Name, "", "qtop "+e.Words+" --help")
	}
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	if e.fill != nil {
		err = e.fill(ctx, c, r)
	}
	if err := e.Complete(r.Args); err != nil {
		return queue.Plan{}, err
	}
	if e.Reason && strings.TrimSpace(r.Reason) == "" {
		return queue.Plan{}, queue.NewError(queue.KindUsage, "a reason is needed", "", "--reason TEXT")
	}
	p := queue.Plan{Request: r, ReadAt: started}
	if err == nil {
		err = e.plan(ctx, c, &p)
	}
	err = pgerror.Translate(err)
	p.Took = time.Since(started)
	if done, _ := find(p.Request.Action); done.command != nil { // a plan may become another action's
		p.Command = done.command(p.Request)
	} else {
		p.Command = done.Command(p.Request)
	}
	c.client.Note(err)
	return p, err
}

// Apply does what the plan shows, or refuses when the row moved on since.
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
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	err = pgerror.Translate(e.apply(ctx, c, p, &res))
	c.client.Note(err)
	return res, err
}
