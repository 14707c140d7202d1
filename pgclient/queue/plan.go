package queue

import (
	"strconv"
	"strings"
	"time"
)

// Request is an operator's request: an action on targets.
type Request struct {
	Action  ActionID
	Targets []string          // ids as the lists show them
	Filter  string            // selects the rows instead of Targets; "" = Targets does
	Or      []string          // further filters; a row that matches Filter or one of them is selected. Only for dead letters
	Within  string            // the filter of the list in which the operator chose Targets; the preview counts the rows that match it
	Args    map[string]string // values by Arg.Name
	Actor   string            // the person whom the audit row names
	Reason  string
	Confirm string // the name that a printed command gives as --confirm; "" = none
	Unseen  bool   // the plan is applied without being shown (--yes): what only the preview needs is not computed
	Whole   bool   // reveal the complete payload, however large; otherwise its first PayloadShown characters
}

// Select makes the request select the rows that match any of the filters.
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
	return "(" + strings.Join(r.Filters(), betweenFilters) + ")"
}

// Selected returns the filters as Selection does, but of many only the first ones, with the number
// of the others.
func (r Request) Selected() string { return someFilters(r.Filters()) }

// filtersShown is how many filters a screen shows of a selection that has more.
const filtersShown = 4

const betweenFilters = ") or ("

func someFilters(filters []string) string {
	switch n := len(filters); {
	case n == 0:
		return ""
	case n == 1:
		return filters[0]
	case n <= filtersShown:
		return "(" + strings.Join(filters, betweenFilters) + ")"
	default:
		return "(" + strings.Join(filters[:filtersShown-1], betweenFilters) + ") … and " + strconv.Itoa(n-filtersShown+1) + " more"
	}
}

// Plan is the exact preview of a Request. Applying the plan does what the preview shows, or is
// refused: Expect holds the state that the preview read, and is compared again at that time.
type Plan struct {
	Request   Request
	Count     int64         // rows that will change
	Skipped   int64         // rows that will not change; the reasons are in Results
	Lines     []PlanLine    // the lines of the dialog
	Blocked   int           // lines about what keeps the work from running
	Circuits  int           // those of them that are about an open circuit
	Results   []Outcome     // per id, bounded to 1,000
	Match     *Match        // the rows that match Request.Within; nil = no more than the selected ones
	Refused   string        // why nothing can be done; empty = the plan can be applied
	Rule      string        // code of the refusal, such as not_found; empty if Refused is
	Expect    string        // the state that the preview read, such as a row's updated_at; Apply refuses if it has changed
	Confirm   string        // the name that the operator must type; empty = none
	Command   string        // the qtop command line that does the same
	Undo      string        // the qtop command line that reverses the action; empty = no single command does
	Final     string        // why the old value cannot be set again; empty = it can, or the action sets none
	ReadAt    time.Time     // when the plan was made, by this machine's clock
	Took      time.Duration // how long planning took
	Ephemeral bool          // changes this process only: no audit row
}

// Match describes the rows that a filter selects: their number, and their names.
type Match struct {
	Count   int64
	AtLeast bool // counting stopped: there are more than Count rows
	What    Text // destinations or names of the rows, the most frequent first
}

// PlanLine is one labelled line of a preview.
type PlanLine struct {
	Label string `json:"label"` // such as "blocked"
	Value Text   `json:"value"`
}

// Outcome is what happened, or would happen, to one id.
type Outcome struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`          // what was done (requeued, acked, …), would_…, skipped, refused
	Why     Text   `json:"why,omitzero"`     // why it was skipped or refused, or what was done
	NewID   string `json:"new_id,omitempty"` // the saga or job that was made or deleted
}

// Result is the result of an applied plan; verbs print it as JSON.
type Result struct {
	Action  ActionID   `json:"action"`
	DryRun  bool       `json:"dry_run"`
	Plan    []PlanLine `json:"plan"` // the lines of the preview
	Results []Outcome  `json:"results"`
	AuditID int64      `json:"audit_id"`          // the last audit row that was written: dead letters of several sources have one each
	Refused string     `json:"refused,omitempty"` // why nothing was changed; empty = it was applied, at least to some of the targets
	Payload Text       `json:"-"`                 // the revealed payload; only the requester gets it, so it is not in the JSON
	Done    int64      `json:"done"`              // how many of Results were done
	Skipped int64      `json:"skipped"`           // how many of Results were skipped, refused or failed
	Intact  bool       `json:"-"`                 // beside an error: it is certain that nothing was changed
}
