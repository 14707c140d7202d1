package queue

// Exports. A list is read page by page, so that an export of a million rows needs only the memory
// of one page.

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// MostPage is the most rows that a page of a list may have.
const MostPage = 10_000

// ExportList is a list that qtop export can write. Its rows are those that the list's verb prints
// with --output json, masked in the same way.
type ExportList struct {
	Name, Help string
	Order      string   // in which the rows are written: "newest first"
	Also       string   // the second name of the list
	Kind       ListKind // empty: the rows are part of the snapshot
	Row        any      // the zero value of a row; the members of its JSON are the columns
	Of         string   // the meaning of Query.ID; empty: the list takes no ID
	Optional   bool     // the ID may be left out
	Plain      bool     // the list takes no filter
	part       bool     // its rows are a part of a page, whose Total counts others too
	// rows returns the rows of a page; whole is false if the list is bounded and may have
	// more rows.
	rows func(p Page) (rows []any, whole bool)
}

// NotificationFailure is a staged row that could not be published, with the reason.
type NotificationFailure struct {
	Failure Text `json:"failure"`
	StagedRow
}

// Each returns the failed rows that were read.
func (f StagedFailure) Each() []any {
	var out []any
	for _, r := range f.Rows {
		out = append(out, NotificationFailure{f.Failure, r})
	}
	return out
}

func each[T any](rows []T) []any {
	out := make([]any, len(rows))
	for i, r := range rows {
		out[i] = r
	}
	return out
}

// all returns rows of a list of which every page is read.
func all[T any](rows []T) ([]any, bool) { return each(rows), true }

// listed returns the rows of a list with several pages, bounded the rows of a list with a single
// page, and whether these are all.
func listed[T any](p Page) ([]any, bool)  { return all(Of[[]T](p)) }
func bounded[T any](p Page) ([]any, bool) { return each(Of[[]T](p)), !p.TotalBound }

// ExportLists returns all lists that can be exported, by name.
func ExportLists() []ExportList {
	return []ExportList{
		{Name: "activity", Help: "sessions that may block the queues", Order: "blocking others first", Kind: ListActivity, Row: Activity{}, rows: bounded[Activity]},
		{Name: "alert-history", Help: "acknowledgements", Order: "newest first", Kind: ListAlertHistory, Row: AlertAck{}, Of: "alert or executor", Optional: true, Plain: true, rows: bounded[AlertAck]},
		{Name: "alerts", Help: "open alerts, such as silences and broadcast shares over their limit", Order: "most urgent first", Row: Alert{}},
		{Name: "audit", Help: "who did what", Order: "newest first", Kind: ListAudit, Row: AuditEntry{}, rows: listed[AuditEntry]},
		{Name: "consumers", Help: "consumers of events", Order: "by domain, type and consumer", Kind: ListConsumers, Row: Consumer{}, Plain: true, rows: listed[Consumer]},
		{Name: "dlq", Also: "dead", Help: "dead letters; the open ones unless the filter says state:", Order: "last failed first", Kind: ListDeadLetters, Row: DeadLetter{}, rows: listed[DeadLetter]},
		{Name: "dlq-groups", Help: "open dead letters by cause", Order: "most open first", Row: DeadGroup{}},
		{Name: "event-types", Help: "registered types of events", Order: "by domain and type", Kind: ListEventTypes, Row: EventType{}, Plain: true, rows: listed[EventType]},
		{Name: "executor-rules", Help: "what executors may claim", Order: "by executor, the worst state first", Row: JobSubscription{}},
		{Name: "executors", Help: "executors with their state", Order: "worst state first", Row: Executor{}},
		{Name: "flag-history", Help: "audit rows of one flag", Order: "newest first", Kind: ListFlagHistory, Row: AuditEntry{}, Of: "flag", rows: listed[AuditEntry]},
		{Name: "flags", Help: "flags with who set them", Order: "worst state first, then by key", Row: Flag{}},
		{Name: "health", Help: "the rows of v_queue_health; of more than 200 groups of dead letters, the subjects with the most", Order: "stale first", Row: HealthRow{}},
		{Name: "hosts", Help: "worker hosts with their loops", Order: "running first, then by id", Row: Host{}, Plain: true},
		{Name: "job-leases", Help: "leases on jobs that expired or are not renewed, the oldest 50", Order: "earliest end first", Row: JobLease{}},
		{Name: "jobs", Help: "live jobs", Order: "earliest due first", Kind: ListJobs, Row: Job{}, Of: "lane as domain/kind", Optional: true, rows: listed[Job]},
		{Name: "notification-failures", Help: "staged rows that could not be published", Order: "by failure, the most frequent first, then oldest first", Kind: ListNotify, Row: NotificationFailure{}, part: true, rows: failuresOf},
		{Name: "notification-log", Help: "what the notification worker did, the last 50 runs", Order: "newest first", Kind: ListNotify, Row: NotificationRun{}, Plain: true, part: true,
			rows: func(p Page) ([]any, bool) {
				log := Of[*Notifications](p).Log
				return each(log), len(log) < RunsShown
			}},
		{Name: "notifications", Help: "staged groups as they will be published", Order: "oldest first", Kind: ListNotify, Row: StagedGroup{}, part: true,
			rows: func(p Page) ([]any, bool) {
				return each(Of[*Notifications](p).Groups), !Of[*Notifications](p).GroupsBound
			}},
		{Name: "operation-items", Help: "the outcome of each item of a bulk operation", Order: "highest item number first", Kind: ListOperation, Row: OperationItem{}, Of: "operation", Plain: true,
			rows: func(p Page) ([]any, bool) { return all(Of[*OperationDetail](p).Items) }},
		{Name: "ops", Also: "operations", Help: "bulk operations", Order: "newest first", Kind: ListOperations, Row: Operation{}, rows: listed[Operation]},
		{Name: "producers", Help: "roles that may enqueue, by executor kind", Order: "by executor kind and role", Kind: ListProducers, Row: ProducerRole{}, Plain: true, rows: listed[ProducerRole]},
		{Name: "quarantine", Help: "rows in quarantine, because a step fails on them", Order: "set aside first, then oldest first", Kind: ListQuarantine, Row: Quarantined{}, Plain: true, rows: bounded[Quarantined]},
		{Name: "queues", Help: "job queues by domain and kind", Order: "stuck first, then by name", Row: Lane{}},
		{Name: "routes", Help: "routes of events", Order: "by domain", Kind: ListRoutes, Row: Route{}, Plain: true, rows: listed[Route]},
		{Name: "scheduler", Help: "tick workers", Order: "worst state first, then by name", Row: TickWorker{}},
		{Name: "subscriptions", Help: "who reads which events", Order: "by domain, type and recipient", Kind: ListEventSubscriptions, Row: EventSubscription{},
			rows: func(p Page) ([]any, bool) { return each(Of[EventSubscriptionList](p).Subscriptions), !p.TotalBound }},
		{Name: "unrouted", Help: "event types whose events go to broadcast", Order: "most events first", Kind: ListEventSubscriptions, Row: UnroutedType{}, part: true,
			rows: func(p Page) ([]any, bool) { return all(Of[EventSubscriptionList](p).Broadcast.Unrouted) }},
		{Name: "waiting", Help: "waiting work in every queue, and why it waits", Order: "longest wait first", Row: Waiting{}, Plain: true},
		{Name: "webhook-leases", Help: "leases on webhook jobs", Order: "earliest end first", Kind: ListLeases, Row: WebhookLease{}, Plain: true, rows: bounded[WebhookLease]},
		{Name: "webhooks", Also: "endpoints", Help: "endpoints of webhooks", Order: "those that do not send first, then longest wait first", Kind: ListEndpoints, Row: Endpoint{}, rows: endpointsOf},
	}
}

func failuresOf(p Page) (rows []any, whole bool) {
	whole = true
	for _, f := range Of[*Notifications](p).Failures {
		rows = append(rows, f.Each()...)
		whole = whole && int64(len(f.Rows)) == f.N
	}
	return rows, whole
}

func endpointsOf(p Page) (rows []any, whole bool) {
	e := Of[EndpointList](p).Endpoints
	return each(e), int64(len(e)) >= p.Total
}

// ExportListNamed finds a list by its Name or Also; an unknown name is a usage error.
func ExportListNamed(name string) (ExportList, error) {
	lists := ExportLists()
	i := slices.IndexFunc(lists, func(l ExportList) bool { return name == l.Name || name == l.Also && name != "" })
	if i >= 0 {
		return lists[i], nil
	}
	names := make([]string, len(lists))
	for i, l := range lists {
		names[i] = l.Name
	}
	near := Nearest(name, names)
	if near != "" {
		near = "did you mean " + near + "? "
	}
	return ExportList{}, &Error{Kind: KindUsage, What: Clean(fmt.Sprintf("there is no list %q", name)), Do: Clean(near + "use one of " + strings.Join(names, ", "))}
}

// Export says what to write and how.
type Export struct {
	List   ExportList
	Query  Query     // Filter and ID, for a list that is read
	Rows   []any     // rows that the caller has already; nil: the list is read
	AsOf   time.Time // when Rows were read
	More   bool      // there are or may be more rows than Rows
	Total  int64     // with More: the least number of rows that match; 0 = not known
	Limit  int64     // 0 = no limit
	Format ExportFormat
}

// Exported says what was written.
type Exported struct {
	Rows  int64
	From  time.Time // when the first page was read
	To    time.Time // when the last page was read
	Total int64     // matching rows, as counted with the first page; 0 = not counted
	Bound bool      // Total is a lower bound
	Cut   bool      // there are more rows than were written
}

// String says how many rows of which list were written, as of when, and what is missing.
func (x Exported) String() string {
	s := fmt.Sprintf("%d rows", x.Rows)
	if x.Rows == 1 {
		s = "1 row"
	}
	switch {
	case !x.Cut:
	case x.Total <= x.Rows:
		s += " of more"
	case x.Bound:
		s += fmt.Sprintf(" of at least %d", x.Total)
	default:
		s += fmt.Sprintf(" of %d", x.Total)
	}
	s += " as of " + x.From.UTC().Format(time.RFC3339)
	if x.To.Sub(x.From) >= time.Second {
		s += " to " + x.To.UTC().Format(time.RFC3339)
	}
	return s
}

// Lister reads one page of a list.
type Lister interface {
	List(ctx context.Context, q Query) (Page, error)
}

// Run writes the export to w. After each page it calls progress with the number of rows written
// so far.
func (x Export) Run(ctx context.Context, from Lister, w io.Writer, progress func(rows int64)) (done Exported, err error) {
	out := newRowWriter(w, x.Format, columnsOf(x.List.Row))
	put := func(rows []any) error {
		if left := x.Limit - done.Rows; x.Limit > 0 && int64(len(rows)) > left {
			rows, done.Cut = rows[:left], true
		}
		for _, r := range rows {
			if err := out.row(r); err != nil {
				return err
			}
		}
		done.Rows += int64(len(rows))
		progress(done.Rows)
		return nil
	}
	if x.Rows != nil {
		done.From, done.To, done.Total = x.AsOf, x.AsOf, max(int64(len(x.Rows)), x.Total)
		done.Bound, done.Cut = x.More, x.More
		err = put(x.Rows)
	} else {
		err = x.read(ctx, from, &done, put)
	}
	if err != nil {
		return done, err
	}
	return done, out.end()
}

// read reads the list page by page and passes the rows to put. It requests one row more than the
// limit, to learn whether there are more rows.
func (x Export) read(ctx context.Context, from Lister, done *Exported, put func([]any) error) error {
	q := x.Query
	q.Kind, q.After = x.List.Kind, ""
	seen := map[string]bool{}
	for {
		q.Limit = MostPage
		if x.Limit > 0 {
			q.Limit = int(min(MostPage, x.Limit-done.Rows+1))
		}
		p, err := from.List(ctx, q)
		if err != nil {
			return err
		}
		if q.After == "" {
			done.From, done.Total, done.Bound = p.AsOf, p.Total, p.TotalBound
			if x.List.part {
				done.Total = 0
			}
		}
		done.To = p.AsOf
		rows, whole := x.List.rows(p)
		if err := put(slices.DeleteFunc(rows, again(seen))); err != nil {
			return err
		}
		if p.Next == "" || done.Cut {
			done.Cut = done.Cut || !whole
			return nil
		}
		q.After, q.Bare = p.Next, true
	}
}

// again returns a function that reports whether a job was exported before. Jobs are read in the
// order of their due times; a job that is retried during the export becomes due later, so it would
// appear twice. In no other list do rows move towards the end.
func again(seen map[string]bool) func(row any) bool {
	return func(row any) bool {
		j, ok := row.(Job)
		if !ok {
			return false
		}
		was := seen[j.ID]
		seen[j.ID] = true
		return was
	}
}
