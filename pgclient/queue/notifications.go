package queue

import (
	"slices"
	"time"
)

// Notifications describes the staging table of notifications: waiting rows in the groups in which
// they will be published, failed rows, and the worker's runs.
type Notifications struct {
	Waiting         int64 `json:"waiting"`
	Debouncing      int64 `json:"debouncing"`            // waiting rows that are younger than DebounceSeconds
	DebouncingBound bool  `json:"debouncing_bound"`      // true: more than Debouncing; counting stopped
	Failed          int64 `json:"failed"`                // rows that could not be published, until an operator requeues them
	DebounceSeconds int64 `json:"debounce_seconds"`      // the debounce in force, limited to the allowed range
	Threshold       int64 `json:"batch_piece_threshold"` // from this many units on, a document gets one notification

	LastRunAt       *time.Time `json:"last_run_at"`      // of the tick worker iu_notification_worker, including runs without work
	IntervalSeconds int64      `json:"interval_seconds"` // of the tick worker; 0 = off
	Stale           bool       `json:"stale"`            // the tick worker is silent

	Groups      []StagedGroup     `json:"groups"`       // the oldest first
	GroupsBound bool              `json:"groups_bound"` // true: Groups covers only the oldest rows
	Failures    []StagedFailure   `json:"failures"`     // grouped by reason, most rows first
	Log         []NotificationRun `json:"log"`          // newest first, at most RunsShown
}

// Due returns the number of rows that the next run would process.
func (n Notifications) Due() int64 { return max(n.Waiting-n.Debouncing, 0) }

// StagedGroup is the group of waiting pieces with the same stable key; all pieces without a key are
// one group.
type StagedGroup struct {
	Key       Text      `json:"stable_key"` // the document or batch that its units have in common
	Keyed     bool      `json:"keyed"`      // false = the group of units without a key
	Document  bool      `json:"document"`   // true: the key is that of a document; false: that of a batch
	Pieces    int64     `json:"pieces"`     // number of new units
	Due       int64     `json:"due"`        // those whose debounce is over
	OldestAt  time.Time `json:"oldest_at"`
	NewestAt  time.Time `json:"newest_at"`
	FirstUnit Text      `json:"first_unit"` // the address of the first unit
	Actor     Text      `json:"actor"`      // who wrote the first unit
}

// Told returns the type and the number of the events that the next run would publish for the group:
// one document_imported if a group with a key has at least threshold pieces, otherwise one
// new_piece_created per piece. Only due pieces count; if none is due, all waiting ones.
func (g StagedGroup) Told(threshold int64) (eventType string, n int64) {
	taken := g.Due
	if taken == 0 {
		taken = g.Pieces
	}
	if g.Keyed && taken >= threshold {
		return "document_imported", 1
	}
	return "new_piece_created", taken
}

// StagedFailure is the group of rows that the worker could not publish for one reason.
type StagedFailure struct {
	Failure Text        `json:"failure"`
	N       int64       `json:"n"` // number of rows
	FirstAt time.Time   `json:"first_failed_at"`
	LastAt  time.Time   `json:"last_failed_at"`
	Rows    []StagedRow `json:"rows"` // the first FailuresShown of them
}

// FailuresShown is the largest number of rows that are read per reason.
const FailuresShown = 1000

// StagedRow is one row of the staging table that failed.
type StagedRow struct {
	ID       string    `json:"id"`
	Kind     Text      `json:"event_kind"`
	Address  Text      `json:"canonical_address"`
	Key      Text      `json:"stable_key"`
	Actor    Text      `json:"actor_ref"`
	StagedAt time.Time `json:"created_at"`
	FailedAt time.Time `json:"failed_at"`
}

// RunsShown is how many runs Notifications.Log has at most.
const RunsShown = 50

// NotificationRun is a row of iu_notification_worker_log.
type NotificationRun struct {
	ID        string    `json:"id"`
	At        time.Time `json:"run_at"`
	Taken     int64     `json:"pending_pre"`       // rows that it claimed
	Left      int64     `json:"pending_post"`      // rows not published after the run, including failed ones
	Groups    int64     `json:"groups_emitted"`    // notifications document_imported
	Pieces    int64     `json:"pieces_emitted"`    // notifications new_piece_created
	Conflicts int64     `json:"conflicts_skipped"` // notifications that existed already
	Marked    int64     `json:"rows_marked"`       // rows that were published
	TookMS    float64   `json:"duration_ms"`
	Errors    int64     `json:"error_count"` // rows that failed in this run; 1 if the whole run failed
	Error     Text      `json:"error_text"`
	Failed    int64     `json:"failed_total"` // all failed rows after the run
}

// Keep removes the groups and failures that do not match the filter, and with any filter the
// worker's runs, which have no field of it.
func (n *Notifications) Keep(f *Filter, now time.Time) {
	if f.Empty() {
		return
	}
	n.Groups = slices.DeleteFunc(n.Groups, func(g StagedGroup) bool {
		return !f.Match(func(name string) (any, bool) { return g.field(name, now) }, now)
	})
	n.Failures = slices.DeleteFunc(n.Failures, func(x StagedFailure) bool {
		return !f.Match(func(name string) (any, bool) { return x.field(name, now) }, now)
	})
	n.Log = nil
}

func (g StagedGroup) field(name string, now time.Time) (any, bool) {
	switch name {
	case "key":
		return g.Key, true
	case "state":
		if g.Due > 0 {
			return "due", true
		}
		return "waiting", true
	case "pieces":
		return g.Pieces, true
	case "unit":
		return g.FirstUnit, true
	case "actor":
		return g.Actor, true
	case "age":
		return now.Sub(g.OldestAt), true
	}
	return nil, false
}

func (f StagedFailure) field(name string, now time.Time) (any, bool) {
	switch name {
	case "state":
		return "failed", true
	case "failure":
		return f.Failure, true
	case "pieces":
		return f.N, true
	case "age":
		return now.Sub(f.FirstAt), true
	}
	return nil, false
}

// NotificationFields returns the fields of the filter of pane gn.
func NotificationFields() []Field {
	return []Field{
		{Name: "key", Kind: FieldText, Help: "document or batch"},
		{Name: "state", Kind: FieldText, Help: "due, waiting, failed"},
		{Name: "pieces", Kind: FieldNumber, Help: "pieces that wait"},
		{Name: "unit", Kind: FieldText, Help: "address of the first piece"},
		{Name: "actor", Kind: FieldText, Help: "who wrote the first piece"},
		{Name: "age", Kind: FieldDuration, Help: "of the oldest piece, or since the first failed"},
		{Name: "failure", Kind: FieldText, Help: "why it could not be told"},
	}
}
