package actions

// A session is signalled in two steps: fn_queue_session_signal checks the request and
// commits the audit row; then the signal is sent with this login's own rights, in a
// statement that checks again that the pid still belongs to that session.

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

func sessionActions() []entry {
	targets := queue.Targets{Name: "SESSION", Many: true, List: "activity", Of: "session"}
	const function = "public.fn_queue_session_signal(integer,timestamptz,text,text,text,boolean)"
	return []entry{
		{Action: queue.Action{
			ID: queue.ActSessionCancel, Words: "session cancel", Example: "qtop session cancel 4711 --reason 'it blocks the router'", Group: "Cancel a session's statement, or end the session", Key: "C", Panes: []queue.PaneID{queue.PaneActivity}, Verb: "Cancel", Noun: "session", Title: "Cancel a session's statement",
			Help: "cancel the statement that a session is running; its program gets an error and continues", Safe: "Let it run",
			Targets: targets, Danger: queue.DangerMany, Function: function, Role: "dead_letter_operator", Reason: true,
		}, plan: planSignal, apply: applySignal},
		{Action: queue.Action{
			ID: queue.ActSessionTerminate, Words: "session terminate", Example: "qtop session terminate 4711 --reason 'it holds the oldest snapshot'", Key: "X", Panes: []queue.PaneID{queue.PaneActivity}, Verb: "Terminate", Noun: "session",
			Help: "end a session; its open transaction is rolled back", Safe: "Let it run",
			Targets: targets, Danger: queue.DangerMany, Function: function, Role: "dead_letter_operator", Reason: true,
		}, plan: planSignal, apply: applySignal},
	}
}

// signalled is the result of fn_queue_session_signal.
type signalled struct {
	pgscan.Refusal
	Login   queue.Text `json:"login"`
	Program queue.Text `json:"program"`
	State   queue.Text `json:"state"`
	Begun   *time.Time `json:"begun"`
}

// session parses a target: PID@START as qtop prints it, or the pid of a session that may
// block the queues.
func (c *Planner) session(ctx context.Context, target string) (id string, pid int64, started time.Time, err error) {
	if pid, started, ok := queue.ParseSessionID(target); ok {
		return target, pid, started, nil
	}
	pid, err = strconv.ParseInt(target, 10, 32)
	if err == nil {
		err = c.act.QueryRow(ctx, "SELECT a.started_at FROM public.fn_queue_activity() a WHERE a.pid = $1::integer AND a.started_at IS NOT NULL", pid).Scan(&started)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return "", 0, started, err
		}
	}
	if err != nil {
		return "", 0, started, &queue.Error{
			Kind: queue.KindUsage, What: queue.Clean(target + " is not a session that may block the queues"),
			Do: queue.Clean("use a pid or id that qtop activity prints"),
		}
	}
	return queue.SessionID(pid, started), pid, started, nil
}

func (c *Planner) askSignal(ctx context.Context, pid int64, started time.Time, r queue.Request, dry bool) (s signalled, err error) {
	name := map[queue.ActionID]string{queue.ActSessionCancel: "cancel", queue.ActSessionTerminate: "terminate"}[r.Action]
	err = c.act.QueryRow(ctx, `SELECT public.fn_queue_session_signal(p_pid => $1::integer, p_started => $2::timestamptz, p_signal => $3::text,
		p_actor => $4::text, p_reason => $5::text, p_dry_run => $6::boolean)`, pid, started, name, r.Actor, r.Reason, dry).Scan(&s)
	return s, err
}

func planSignal(ctx context.Context, c *Planner, p *queue.Plan) error {
	var targets []string
	seen := map[string]bool{}
	for _, t := range p.Request.Targets {
		id, pid, started, err := c.session(ctx, t)
		if err != nil {
			return err
		}
		if seen[id] { // named twice, such as by its id and by its pid
			continue
		}
		seen[id] = true
		s, err := c.askSignal(ctx, pid, started, p.Request, true)
		if err != nil {
			return err
		}
		out := queue.Outcome{ID: id, Outcome: "would_signal"}
		cancel := p.Request.Action == queue.ActSessionCancel
		if cancel && !s.Refused && s.State.String() != "active" {
			s.Refused, s.Reason = true, queue.NothingToCancel
		}
		if s.Refused {
			out.Outcome, out.Why = "refused", queue.Clean(s.Reason)
			p.Skipped++
			p.Lines = append(p.Lines, line(id, "%s", s.Reason))
		} else {
			p.Count++
			targets = append(targets, id)
			p.Lines = append(p.Lines, line("session", "%d of %s, %s: %s", pid, s.Login, s.Program, s.State))
			switch {
			case cancel:
				p.Lines = append(p.Lines, line("then", "its statement fails; if its program began a transaction, that stays open in the failed state"))
			case s.Begun != nil:
				p.Lines = append(p.Lines, line("then", "the transaction that it has open since %s is rolled back", queue.Stamp(*s.Begun, time.RFC3339)))
			}
		}
		p.Results = append(p.Results, out)
	}
	if p.Count == 0 && len(p.Results) > 0 {
		p.Refused, p.Rule = p.Results[0].Why.String(), "refused"
		return nil
	}
	p.Request.Targets = targets
	return nil
}

// applySignal sends the signals. "signalled" means that the server accepted the signal; only
// the list of sessions shows whether the statement ended.
func applySignal(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	send := "SELECT pg_catalog.pg_cancel_backend($1::integer) WHERE public.fn_queue_session_is($1::integer, $2::timestamptz)"
	if p.Request.Action == queue.ActSessionTerminate {
		send = "SELECT pg_catalog.pg_terminate_backend($1::integer, 0::bigint) WHERE public.fn_queue_session_is($1::integer, $2::timestamptz)"
	}
	for _, id := range p.Request.Targets {
		_, pid, started, err := c.session(ctx, id)
		if err != nil {
			return err
		}
		s, err := c.askSignal(ctx, pid, started, p.Request, false)
		if err != nil {
			return err
		}
		out := queue.Outcome{ID: id, Outcome: "signalled"}
		if !s.Refused || res.Done == 0 {
			res.AuditID = s.AuditID
		}
		if s.Refused {
			out.Outcome, out.Why = "refused", queue.Clean(s.Reason)
		} else {
			var sent bool
			switch err := c.act.QueryRow(ctx, send, pid, started).Scan(&sent); {
			case errors.Is(err, pgx.ErrNoRows), err == nil && !sent:
				out.Outcome, out.Why = "skipped", queue.Clean("the session had already ended")
			case err != nil:
				return err
			}
		}
		record(res, []queue.Outcome{out})
	}
	return nil
}
