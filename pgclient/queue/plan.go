package queue

import (
	"strings"
	"time"
)

// Request requests an action on targets.
type Request struct {
	Action  ActionID
	Targets []string          // ids as the lists show them
	Filter  string            // instead of Targets
	Or      []string          // further filters: a dead letter that matches any of them is taken as well
	Within  string            // the filter of the list that the rows were chosen from; the plan says how many match it
	Args    map[string]string // by Arg.Name
	Actor   string
	Reason  string
	Whole   bool // of a reveal: all of the payload, however large; else its first PayloadShown characters
}

// Select selects the rows that match any of the filters.
func (r *Request) Select(filters []string) {
	r.Filter, r.Or = "", nil
	if len(filters) > 0 {
		r.Filter = filters[0]
	}
	if len(filters) > 1 {
		r.Or = filters[1:]
	}
}

// Filters returns Filter and Or; nil if rows are named by their ids.
func (r Request) Filters() []string {
	if r.Filter == "" {
		return nil
	}
	return append([]string{r.Filter}, r.Or...)
}

// Selection returns the filters as one text; "" if rows are named by their ids.
func (r Request) Selection() string {
	if len(r.Or) == 0 {
		return r.Filter
	}
	return "(" + strings.Join(r.Filters(), ") or (") + ")"
}

// Plan is the exact preview of a Request. Applying it does what the preview shows, or refuses:
// Expect holds what was read and is compared again when the plan is applied.
type Plan struct {
	Request   Request
	Count     int64         // rows that will change
	Skipped   int64         // rows that will not, with their reasons in Results
	Lines     []PlanLine    // what the dialog shows
	Results   []Outcome     // per id, bounded to 1,000
	Match     *Match        // all rows that match Request.Within, if they are more; nil: there are no more
	Refused   string        // non-empty: nothing can be done, and why
	Rule      string        // code of the refusal
	Expect    string        // compare-and-set token
	Confirm   string        // of DangerDatabase: the name that must be typed
	Command   string        // the equivalent headless command line
	ReadAt    time.Time     // when it was read, by this machine's clock
	Took      time.Duration // of the planning
	Ephemeral bool          // concerns this process only: no audit row
}

// Match is what a filter selects: how many rows, and what they are.
type Match struct {
	Count   int64
	AtLeast bool // there are more than were counted
	What    Text // where they go or what they are, the most frequent first
}

// PlanLine is one labelled line of a preview.
type PlanLine struct {
	Label string `json:"label"`
	Value Text   `json:"value"`
}

// Outcome is what happened, or would happen, to one id.
type Outcome struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"` // done verbs (requeued, acked, …), would_…, skipped, refused
	Why     Text   `json:"why,omitzero"`
	NewID   string `json:"new_id,omitempty"`
}

// Result is the result of an applied plan, in the form of the headless JSON.
type Result struct {
	Action  ActionID   `json:"action"`
	DryRun  bool       `json:"dry_run"`
	Plan    []PlanLine `json:"plan"`
	Results []Outcome  `json:"results"`
	AuditID int64      `json:"audit_id"` // of the last row: a request for dead letters of several sources writes one row each
	Refused string     `json:"refused,omitempty"`
	Payload Text       `json:"-"` // the revealed payload; it is returned to the requester only
	Done    int64      `json:"done"`
	Skipped int64      `json:"skipped"`
}
