package queue

import (
	"fmt"
	"strings"
	"time"
)

// The states of an operation.
const (
	BulkPlanned   = "planned"
	BulkRunning   = "running"
	BulkPaused    = "paused"
	BulkCompleted = "completed"
	BulkAborted   = "aborted"
)

// BulkResolve is the kind of an operation that closes dead letters.
const BulkResolve = "resolve"

// Operation is a bulk operation, a row of queue_bulk_operation: a frozen selection of
// dead letters that worker hosts requeue or close at a rate.
type Operation struct {
	ID           int64      `json:"operation_id"`
	Kind         string     `json:"kind"`       // requeue_webhook, replay_job, replay_event, resolve
	Filter       Text       `json:"filter"`     // the filter that selected the dead letters
	CreatedBy    Text       `json:"created_by"` // the person who planned it
	CreatedAt    time.Time  `json:"created_at"`
	Reason       Text       `json:"reason"`
	State        string     `json:"state"`           // one of the Bulk… constants
	StateWhy     Text       `json:"state_why"`       // why the brake or a canary paused the operation
	StateBy      Text       `json:"state_by"`        // who changed the state last
	StateAt      time.Time  `json:"state_at"`        // when the state changed last
	StartedAt    *time.Time `json:"started_at"`      // null = not started yet
	Rate         float64    `json:"rate_per_second"` // items per second, 0.01 to 1000
	Brake        int        `json:"brake_percent"`   // percentage of failed first attempts that pauses the operation; 0 = no brake
	Canary       int        `json:"canary"`          // this many items run first, and must succeed; 0 = no canary
	CanaryPassed bool       `json:"canary_passed"`   // all canary items succeeded; the others may run
	Frozen       int64      `json:"frozen_count"`    // number of items
	Requeued     int64      `json:"requeued"`        // items that were requeued, replayed or resolved
	Sent         int64      `json:"sent"`            // requeued items whose first attempt has begun
	Done         int64      `json:"done"`            // requeued items whose first attempt is settled
	Skipped      int64      `json:"skipped"`         // items that did not qualify any more
	Failed       int64      `json:"failed"`          // items that could not be carried out
	Undone       int64      `json:"undone"`          // items that were requeued and then undone
	FirstOK      int64      `json:"first_ok"`        // first attempts of requeued items that succeeded
	FirstFailed  int64      `json:"first_failed"`    // first attempts of requeued items that failed
	Waits        Text       `json:"waits"`           // what a running operation waits for, apart from its rate; empty = nothing
}

// NotYet says, of a request that plans operations, what has not happened when they are planned.
func NotYet(r Request) string {
	return "nothing is " + Choose(r.Args["what"] == BulkResolve, "closed", "sent") + " yet"
}

// BrakeWords says when the brake of an operation pauses it; percent is its setting. fn_queue_bulk_halt
// does it so.
func BrakeWords(percent int) string {
	return Choose(percent == 0, "none", fmt.Sprintf("pauses when %d %% of the last 10 to 50 first attempts failed", percent))
}

// Word returns the word for the outcome of an item: done is what the operation does to a dead letter.
func (o Operation) Word(outcome string) string {
	if outcome != "done" {
		return outcome
	}
	return Choose(o.Kind == BulkResolve, "closed", "requeued")
}

// Unsettled reports whether an item is requeued and its first attempt is not settled yet.
func (o Operation) Unsettled(i OperationItem) bool {
	return i.Outcome == "done" && i.FirstResult == "" && o.Kind != BulkResolve
}

// Filters returns the filters that selected the dead letters.
func (o Operation) Filters() []string {
	s := o.Filter.String()
	if inner, ok := strings.CutPrefix(s, "("); ok && strings.Contains(s, betweenFilters) {
		return strings.Split(strings.TrimSuffix(inner, ")"), betweenFilters)
	}
	return []string{s}
}

// Selected returns the filters as one text, of many only the first ones, with the number of the
// others.
func (o Operation) Selected() string { return someFilters(o.Filters()) }

// Title names the operation: what it does with how many dead letters (frozen is Frozen as text), and its selection.
func (o Operation) Title(frozen string) string {
	return Shown(OperationWords(), o.Kind) + " " + frozen + " " + Choose(o.Frozen == 1, "dead letter", "dead letters") + ": " + o.Selected()
}

// Tried returns the number of items that were requeued, skipped, failed or undone.
func (o Operation) Tried() int64 { return o.Requeued + o.Skipped + o.Failed + o.Undone }

// Left returns the number of items that were not carried out yet.
func (o Operation) Left() int64 { return o.Frozen - o.Tried() }

// Ended returns the number of items in their final state.
func (o Operation) Ended() int64 { return o.Done + o.Skipped + o.Failed + o.Undone }

// Unknown returns the number of requeued items whose first attempt is not settled yet.
func (o Operation) Unknown() int64 { return o.Requeued - o.Done }

// Undoable returns how many items an undo may take back: requeued items that were not attempted, or
// dead letters that were closed.
func (o Operation) Undoable() int64 {
	if o.Kind == BulkResolve {
		return o.Requeued
	}
	return o.Unknown()
}

// EndedBadly reports whether the operation has ended and first attempts of its items failed. Such an
// item counts as done: its first attempt is settled.
func (o Operation) EndedBadly() bool {
	return o.FirstFailed > 0 && (o.State == BulkCompleted || o.State == BulkAborted)
}

// EndsIn returns how long the remaining items take at the rate. It returns false unless the
// operation is running and only the rate delays it.
func (o Operation) EndsIn() (time.Duration, bool) {
	if o.State != BulkRunning || o.Rate <= 0 || !o.Waits.Empty() {
		return 0, false
	}
	return time.Duration(float64(o.Left()+max(o.Requeued-o.Sent, 0)) / o.Rate * float64(time.Second)), true
}

// OperationFields returns the fields of the filter of bulk operations.
func OperationFields() []Field {
	return []Field{
		{Name: "id", Kind: FieldNumber, Help: "its number"},
		{Name: "state", Kind: FieldText, Help: "planned, running, paused, completed, aborted"},
		{Name: "by", Kind: FieldText, Help: "who planned it"},
		{Name: "kind", Kind: FieldText, Help: "requeue_webhook, replay_job, replay_event, resolve"},
		{Name: "selection", Kind: FieldText, Help: "the filter it was planned with"},
	}
}

// OperationItem is one frozen dead letter of an operation.
type OperationItem struct {
	No          int64      `json:"item_no"`      // its place in the order of the operation, from 1
	Target      Text       `json:"target"`       // id of the dead letter: NUMBER, job:UUID or event:UUID
	Outcome     string     `json:"outcome"`      // done, skipped, failed, undone; empty = not carried out
	Why         Text       `json:"why"`          // why it was skipped or failed
	NewID       Text       `json:"new_id"`       // the saga or job that the dead letter became
	At          *time.Time `json:"at"`           // when it was carried out; null = not yet
	FirstResult string     `json:"first_result"` // how the first attempt of NewID ended: ok, failed; empty = not known yet
	FirstCode   Text       `json:"first_code"`   // failure code of that first attempt; empty = none
}
