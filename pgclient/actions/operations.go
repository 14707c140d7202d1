package actions

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// operationChanges says, for each action on an operation, the statement that makes the
// change, the word for the outcome, and whether the change is refused if rate or state changed since
// the preview. A pause, an abort and an undo send nothing more, at whatever rate.
var operationChanges = map[queue.ActionID]struct {
	sql, done string
	asSeen    bool
}{
	queue.ActBulkRun:    {"SELECT public.fn_queue_bulk_run($1::bigint, $2::text)", "running", true},
	queue.ActBulkPause:  {"SELECT public.fn_queue_bulk_pause($1::bigint, $2::text)", "paused", false},
	queue.ActBulkResume: {"SELECT public.fn_queue_bulk_resume($1::bigint, $2::text)", "running", true},
	queue.ActBulkAbort:  {"SELECT public.fn_queue_bulk_abort($1::bigint, $2::text)", "aborted", false},
	queue.ActBulkRate:   {"SELECT public.fn_queue_bulk_set_rate($1::bigint, $3::numeric, $2::text)", "rate set", true},
	queue.ActBulkUndo:   {"SELECT public.fn_queue_bulk_undo($1::bigint, $2::text)", "undone", false},
}

// operationState is what an operator decides by: the rate, and since when the operation is in its state.
type operationState struct {
	Rate    float64   `json:"rate_per_second"`
	State   string    `json:"state"`
	StateAt time.Time `json:"state_at"`
}

func (s operationState) String() string {
	return fmt.Sprintf("%s/s, %s since %s", rateText(s.Rate), s.State, s.StateAt.UTC().Format(time.RFC3339Nano))
}

func rateText(perSecond float64) string { return strconv.FormatFloat(perSecond, 'f', -1, 64) }

// rateOf returns the argument rate of a request.
func rateOf(r queue.Request) (float64, error) { return strconv.ParseFloat(r.Args["rate"], 64) }

func planOperation(ctx context.Context, c *Planner, p *queue.Plan) error {
	id, err := parseid.Operation(p.Request.Targets[0])
	if err != nil {
		return err
	}
	ops, err := pgrow.Operations(ctx, c.act, "WHERE o.operation_id = $1", id)
	if err != nil {
		return err
	}
	if len(ops) == 0 {
		return refuse(p, "not_found", fmt.Sprintf("there is no operation %d; qtop ops lists them", id))
	}
	o := ops[0]
	p.Expect = operationState{o.Rate, o.State, o.StateAt}.String()
	p.Lines = append(p.Lines,
		line("operation", "%d: %s", o.ID, o.Title(strconv.FormatInt(o.Frozen, 10))),
		line("state", "%s by %s since %s", o.State, o.StateBy, queue.Stamp(o.StateAt, "2006-01-02 15:04:05Z")), line("reason", "%s", o.Reason),
		line("progress", "%d of %d ended; items: %d %s, %d skipped, %d failed, %d undone, %d left", o.Ended(), o.Frozen, o.Requeued, o.Word("done"), o.Skipped, o.Failed, o.Undone, o.Left()))
	if o.Kind != queue.BulkResolve {
		addLine(p, "first attempts", "%d of %d requeued sent: %d ok / %d failed, %d not settled", o.Sent, o.Requeued, o.FirstOK, o.FirstFailed, o.Unknown())
	}
	if o.StateWhy.String() != "" {
		addLine(p, "paused by", "%s", o.StateWhy)
	}
	if !o.Waits.Empty() {
		addLine(p, "waits", "%s", o.Waits)
	}
	if rule, why := o.Refuses(p.Request.Action); rule != "" {
		return refuse(p, rule, why)
	}
	p.Count = 1
	switch p.Request.Action {
	case queue.ActBulkRun, queue.ActBulkResume:
		p.Count = o.Left()
		p.Lines = append(p.Lines, line("then", "%d at %s/s: about %s", o.Left(), rateText(o.Rate),
			span(lasts(o.Left(), o.Rate))), firstMinute(o.Left()+o.Unknown(), o.Rate))
		if err := c.blockedOperation(ctx, p, o); err != nil {
			return err
		}
		if o.Kind == "requeue_webhook" {
			if err := c.beside(ctx, p, o.Tried() == 0, subscriptionsWaiting, o.ID); err != nil {
				return err
			}
		}
		if err := c.runners(ctx, p, o.Kind); err != nil {
			return err
		}
		waitsFirst(p, "then", lasts(o.Left(), o.Rate), o.Rate)
		return nil
	case queue.ActBulkUndo:
		p.Count = o.Undoable()
		if o.Kind == queue.BulkResolve {
			addLine(p, "then", "up to %s opened again: those that nobody else has closed since", queue.Plural(p.Count, "dead letter is", "dead letters are"))
		} else {
			addLine(p, "then", "up to %s recalled: those not attempted yet", queue.Plural(p.Count, "item is", "items are"))
		}
	case queue.ActBulkAbort:
		addLine(p, "then", "%s open; this operation cannot be started again", queue.Plural(o.Left(), "dead letter remains", "dead letters remain"))
		if o.Unknown() > 0 {
			addLine(p, "still sent", "%s, at the same rate; undo recalls what is not attempted yet", queue.Plural(o.Unknown(), "requeued item", "requeued items"))
		}
	case queue.ActBulkRate:
		was := rateText(o.Rate)
		rate, err := rateOf(p.Request)
		if err != nil {
			return err
		}
		addLine(p, "rate", "%s/s → %s/s", was, rateText(rate))
		setBack(p, map[string]string{"rate": was})
	}
	return nil
}

func applyOperation(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	id, err := parseid.Operation(p.Request.Targets[0])
	if err != nil {
		return err
	}
	change := operationChanges[p.Request.Action]
	args := []any{id, p.Request.Actor}
	if p.Request.Action == queue.ActBulkRate {
		rate, err := rateOf(p.Request)
		if err != nil {
			return err
		}
		args = append(args, rateText(rate))
	}
	var a struct {
		answer
		Was     operationState `json:"was"`
		Kind    string         `json:"kind"`
		Undone  int64          `json:"undone"`
		Skipped int64          `json:"skipped"`
		Others  int64          `json:"others"` // of the skipped ones, dead letters that others have closed again since
	}
	err = c.applySeen(ctx, p, res, p.Request.Targets[0], "the operation", func(tx pgx.Tx) (found, error) {
		err := tx.QueryRow(ctx, change.sql, args...).Scan(&a)
		f := found{answer: a.answer, state: p.Expect, done: change.done}
		if change.asSeen {
			f.state, f.since = a.Was.String(), fmt.Sprintf("to %s/s, %s", rateText(a.Was.Rate), a.Was.State)
		}
		return f, err
	})
	if err != nil || p.Request.Action != queue.ActBulkUndo || res.Done == 0 {
		return err
	}
	res.Done, res.Skipped = a.Undone, a.Skipped
	why := fmt.Sprintf("%d recalled, %d attempted already", a.Undone, a.Skipped-a.Others)
	if a.Kind == queue.BulkResolve {
		why = fmt.Sprintf("%d opened again, %d not", a.Undone, a.Skipped-a.Others)
	}
	if a.Others > 0 {
		why += fmt.Sprintf(", %d requeued or resolved again by others since", a.Others)
	}
	res.Results[0].Why = queue.Clean(why)
	return nil
}
