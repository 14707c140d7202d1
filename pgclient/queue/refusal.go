package queue

// Refusals that a row itself shows: the state in which it was last read does not allow the action.
// The database decides again when the action is planned, and when it is applied.

import (
	"slices"
	"strconv"
	"strings"
)

// operationStates are the states of an operation in which an action on it is allowed.
func operationStates(a ActionID) []string {
	return map[ActionID][]string{
		ActBulkRun:    {BulkPlanned},
		ActBulkPause:  {BulkRunning},
		ActBulkResume: {BulkPaused},
		ActBulkAbort:  {BulkPlanned, BulkRunning, BulkPaused},
		ActBulkRate:   {BulkPlanned, BulkRunning, BulkPaused},
		ActBulkUndo:   {BulkPaused, BulkAborted, BulkCompleted},
	}[a]
}

// NotRecalled is the reason why an event that was routed again cannot be recalled.
const NotRecalled = "routed events cannot be recalled: their recipients have them"

// Refuses returns the rule and the reason why an action on the operation is refused, or "".
func (o Operation) Refuses(a ActionID) (rule, why string) {
	switch {
	case !slices.Contains(operationStates(a), o.State):
		return "state", "operation " + strconv.FormatInt(o.ID, 10) + " is " + o.State + ": this needs one that is " + strings.Join(operationStates(a), " or ")
	case a != ActBulkUndo:
	case o.Kind == "replay_event":
		return "final", NotRecalled
	case o.Requeued == 0 && o.Undone > 0:
		return "empty", "all that this operation did is undone already"
	case o.Requeued == 0:
		return "empty", "this operation has " + Choose(o.Kind == BulkResolve, "closed", "requeued") + " nothing yet: qtop ops abort ends it"
	case o.Undoable() == 0:
		return "empty", "every item that this operation requeued was attempted already: none can be recalled"
	}
	return "", ""
}

// Refuses returns the reason why an action on the dead letter is refused, or "".
func (x DeadLetter) Refuses(a ActionID) string {
	name := "dead letter " + x.ID
	switch a {
	case ActRequeue, ActResolve, ActBulkPlan:
		switch {
		case x.State == "requeued":
			return name + " is requeued already; U recalls it if it was not attempted yet"
		case x.State == "resolved":
			return name + " is closed already; :reopen opens it again"
		case a == ActRequeue && x.ErasedAt != nil:
			return name + " cannot be requeued: its payload was erased by " + x.ErasedBy.String()
		}
	case ActReopen:
		if x.State != "resolved" {
			return name + " is " + x.State + ", not closed"
		}
	case ActUndoRequeue:
		switch {
		case x.State == "open":
			return name + " is open: there is no requeue to undo"
		case x.State == "resolved":
			return name + " is closed: there is no requeue to undo; :reopen opens it again"
		case x.Source == "event":
			return NotRecalled
		}
	case ActErase:
		switch {
		case x.EventID == 0:
			return "only webhook events can be erased; payloads of jobs and routed events are removed at the end of their retention"
		case x.ErasedAt != nil:
			return "the payload of " + name + " was erased already, by " + x.ErasedBy.String()
		}
	}
	return ""
}

// Refuses returns the reason why an action on the job is refused, or "".
func (j Job) Refuses(a ActionID) string {
	if a == ActJobCancel && j.FinishedAt != nil {
		return "job " + j.ID + " is finished: " + j.Status
	}
	return ""
}

// Refuses returns the reason why an action on the executor is refused, or "".
func (x Executor) Refuses(a ActionID) string {
	switch {
	case a != ActExecOwner && a != ActExecDeregister && a != ActJobSubscribe:
	case x.DeregisteredAt != nil:
		return x.ID.String() + " is deregistered"
	case !x.TickWorker:
	case a == ActExecDeregister:
		return x.ID.String() + " is a worker of the queue itself: switch it off with " + TickInterval(x.ID.String()) + " = 0"
	case a == ActExecOwner:
		return x.ID.String() + " is a worker of the queue itself: no host works as it"
	default:
		return x.ID.String() + " is a worker of the queue itself and claims no jobs"
	}
	return ""
}

// Refuses returns the reason why an action on the tick worker is refused, or "".
func (t TickWorker) Refuses(a ActionID) string {
	switch {
	case a != ActTick || t.State != "off":
	case t.IntervalSeconds == 0:
		return TickInterval(t.Name.String()) + " is 0: resume the worker first"
	case !t.FlagKey.Empty():
		return t.FlagKey.String() + " is off"
	}
	return ""
}

// Refuses returns the reason why an action on the session is refused, or "".
func (a Activity) Refuses(action ActionID) string {
	_, _, ok := ParseSessionID(a.ID)
	switch {
	case !ok:
		return "C and X need a session; this row is not a session"
	case action == ActSessionCancel && a.Seen && a.State.String() != "active":
		return NothingToCancel
	}
	return ""
}

// NothingToCancel is the reason why the statement of a session cannot be cancelled.
const NothingToCancel = "no statement to cancel: X or qtop session terminate ends the session"
