package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

// fakeStore is a Store that answers from values in memory, which a test may
// change while the console runs.
type fakeStore struct {
	mu            sync.Mutex
	snap          queue.Snapshot
	session       queue.Session
	link          queue.Link
	deadLetters   []queue.DeadLetter
	jobs          []queue.Job
	audit         []queue.AuditEntry
	notify        queue.Notifications
	subscriptions []queue.EventSubscription
	operations    []queue.Operation
	endpoints     []queue.Endpoint
	leases        []queue.WebhookLease
	asOf          time.Time // when a page of endpoints was read; zero: not known
	unread        int64     // endpoints that a page of endpoints leaves out
	pages         bool      // dead letters are read in pages of the length asked for
	sessions      []queue.Activity
	quarantine    []queue.Quarantined
	history       []queue.AlertAck
	share         queue.Broadcast
	resolve       queue.Resolution
	err           error
	delay         time.Duration  // how long Snapshot takes
	login         time.Duration  // how long a session takes
	acting        time.Duration  // how long Apply takes
	slow          time.Duration  // how long each page after the first takes in a list of dead letters
	stuck         queue.ListKind // reads of this kind of list get no answer
	running       int            // reads of the kind stuck that are in progress
	begun         int            // reads of the kind stuck that began
	snaps         []time.Time
	ages          []time.Duration // the argument maxAge of each call of Snapshot
	lists         []queue.Query
	plans         []queue.Request
	applied       []queue.Plan
	refuse        string // the refusal that Apply returns; "": it applies the plan
	payload       string // the payload that is revealed; "": one with a key
	unknown       error  // the error that a read of :why returns
	flying        int    // reads of snapshots and sessions in progress
	most          int    // the greatest value that flying had
	changes       chan struct{}
	clock         func() time.Time
	kept          []queue.Snapshot                        // stored snapshots, oldest first
	past          time.Duration                           // how long reading a stored snapshot takes
	plan          func(queue.Request) (queue.Plan, error) // answers Plan, in place of the fixed plan
}

func (s *fakeStore) Actions() queue.Registry { return actions.Registry() }

func newStore() *fakeStore {
	s := &fakeStore{
		session: viewstest.Session(), link: queue.Link{State: "live"},
		share: viewstest.BroadcastShare(), resolve: viewstest.Resolution(), changes: make(chan struct{}, 1), clock: time.Now,
	}
	s.fill()
	for _, a := range actions.Registry() {
		s.session.Rights[a.ID] = true
	}
	return s
}

// fill gives the store rows of every kind.
func (s *fakeStore) fill() {
	s.snap, s.deadLetters, s.jobs, s.audit = viewstest.Rich(), viewstest.DeadLetters(40), viewstest.Jobs(40), viewstest.Audit()
	s.notify, s.subscriptions, s.operations = viewstest.Notifications(), viewstest.EventSubscriptions(), viewstest.Operations()
	s.endpoints, s.leases, s.sessions = viewstest.Endpoints(), viewstest.WebhookLeases(), viewstest.Sessions()
	s.quarantine, s.history = viewstest.Quarantine(), viewstest.History()
}

// empty removes all rows.
func (s *fakeStore) empty() {
	s.snap, s.deadLetters, s.jobs, s.audit = viewstest.Empty(), nil, nil, nil
	s.notify, s.subscriptions, s.operations = queue.Notifications{}, nil, nil
	s.endpoints, s.leases, s.sessions, s.quarantine, s.history = nil, nil, nil, nil, nil
}

func (s *fakeStore) set(f func(*fakeStore)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// fly is called by the methods that read a snapshot or a session: it waits for
// delay and counts how many such reads are in progress.
func (s *fakeStore) fly(ctx context.Context, delay time.Duration) error {
	s.mu.Lock()
	s.flying++
	s.most = max(s.most, s.flying)
	s.mu.Unlock()
	defer s.set(func(s *fakeStore) { s.flying-- })
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (s *fakeStore) Snapshot(ctx context.Context, maxAge time.Duration) (queue.Snapshot, error) {
	var delay time.Duration
	s.set(func(s *fakeStore) {
		s.snaps, s.ages, delay = append(s.snaps, s.clock()), append(s.ages, maxAge), s.delay
	})
	if err := s.fly(ctx, delay); err != nil {
		return queue.Snapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.snap // the slices are copied below, because the test may change them meanwhile
	p.Queues, p.JobLeases, p.JobSubscriptions = slices.Clone(p.Queues), slices.Clone(p.JobLeases), slices.Clone(p.JobSubscriptions)
	p.Alerts, p.Executors, p.Health = slices.Clone(p.Alerts), slices.Clone(p.Executors), slices.Clone(p.Health)
	return p, s.err
}

func (s *fakeStore) SnapshotAt(_ context.Context, at time.Time, steps int) (queue.Snapshot, time.Time, error) {
	s.mu.Lock()
	kept, delay, err := s.kept, s.past, s.err
	s.mu.Unlock()
	time.Sleep(delay) // virtual time: as long as the database takes in this test
	if err != nil || len(kept) == 0 {
		return queue.Snapshot{}, time.Time{}, err
	}
	first := kept[0].TakenAt
	before, upTo := 0, 0
	for _, k := range kept {
		if k.TakenAt.Before(at) {
			before++
		}
		if !k.TakenAt.After(at) {
			upTo++
		}
	}
	i := upTo + steps - 1
	if steps < 0 && before > 0 {
		i = max(before+steps, 0)
	}
	if i < 0 || i >= len(kept) || (steps < 0 && before == 0) {
		return queue.Snapshot{}, first, nil
	}
	return kept[i], first, nil
}

func (s *fakeStore) List(ctx context.Context, q queue.Query) (queue.Page, error) {
	if s.hangs(q.Kind, 1) {
		<-ctx.Done()
		s.hangs(q.Kind, -1)
		return queue.Page{}, ctx.Err()
	}
	if q.Kind == queue.ListSession {
		var delay time.Duration
		s.set(func(s *fakeStore) { delay = s.login })
		if err := s.fly(ctx, delay); err != nil {
			return queue.Page{}, err
		}
	}
	if s.slow > 0 && q.Bare {
		select {
		case <-time.After(s.slow):
		case <-ctx.Done():
			return queue.Page{}, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, q)
	switch q.Kind { //nolint:exhaustive // every other list is empty
	case queue.ListSession:
		x := s.session
		return queue.Page{Rows: &x}, s.err
	case queue.ListDeadLetters:
		if s.pages {
			return pageOf(s.deadLetters, q), s.err
		}
		if q.After != "" {
			return queue.Page{Total: int64(len(s.deadLetters)) + 4600}, s.err
		}
		return queue.Page{Rows: s.deadLetters, Total: int64(len(s.deadLetters)) + 4600, Next: "more"}, s.err
	case queue.ListJobs:
		jobs := s.jobs
		if q.Filter == "status:retry_waiting" { // as the database would filter
			jobs = slices.DeleteFunc(slices.Clone(jobs), func(j queue.Job) bool { return j.Status != "retry_waiting" })
			return queue.Page{Rows: jobs, Total: int64(len(jobs))}, s.err
		}
		return queue.Page{Rows: jobs, Total: int64(len(jobs)) + 1176, Next: map[bool]string{true: "more"}[q.After == ""]}, s.err
	case queue.ListJob:
		d := viewstest.Job()
		if i := slices.IndexFunc(s.jobs, func(j queue.Job) bool { return j.ID == q.ID }); i >= 0 {
			d.Job = s.jobs[i]
		}
		return queue.Page{Rows: &d}, s.err
	case queue.ListDeadLetter:
		if strings.HasPrefix(q.ID, "job:") {
			d := viewstest.JobDeadLetter()
			return queue.Page{Rows: &d}, s.err
		}
		d := viewstest.Detail()
		if x, ok := queue.Find(s.deadLetters, func(x queue.DeadLetter) bool { return x.ID == q.ID }); ok {
			d.State = x.State
		}
		return queue.Page{Rows: &d}, s.err
	case queue.ListAudit, queue.ListFlagHistory:
		return queue.Page{Rows: s.audit, Total: int64(len(s.audit))}, s.err
	case queue.ListOperations:
		rows := s.operations
		if q.Filter != "" { // as the database would filter
			rows = rows[:min(len(rows), 1)]
		}
		return pageOf(rows, q), s.err
	case queue.ListOperation:
		for _, o := range s.operations {
			if q.ID == strconv.FormatInt(o.ID, 10) {
				return queue.Page{Rows: &queue.OperationDetail{Operation: o, Items: viewstest.OperationItems()}}, s.err
			}
		}
	case queue.ListEndpoints:
		rows := s.endpoints
		if q.Filter != "" { // as the database would filter
			rows = rows[:min(len(rows), 1)]
		}
		return queue.Page{Rows: queue.EndpointList{Endpoints: rows[:min(len(rows), cmp.Or(q.Limit, len(rows)))], Leases: s.leases}, Total: int64(len(rows)) + s.unread, AsOf: s.asOf}, s.err
	case queue.ListEndpoint:
		for _, r := range s.endpoints {
			if q.ID == strconv.FormatInt(r.ID, 10) {
				d := viewstest.EndpointPage()
				d.Endpoint = r
				return queue.Page{Rows: &d}, s.err
			}
		}
	case queue.ListLeases:
		return queue.Page{Rows: s.leases}, s.err
	case queue.ListQuarantine:
		return queue.Page{Rows: s.quarantine}, s.err
	case queue.ListActivity:
		rows := s.sessions
		if f, err := queue.ParseFilter(q.Filter, queue.ActivityFields()); err == nil { // as pgclient filters
			rows = slices.DeleteFunc(slices.Clone(rows), func(a queue.Activity) bool { return !f.Match(a.Field, viewstest.Now()) })
		}
		return queue.Page{Rows: rows, Total: int64(len(rows))}, s.err
	case queue.ListNotify:
		n := s.notify
		if f, err := queue.ParseFilter(q.Filter, queue.NotificationFields()); err == nil { // as pgclient filters
			n.Groups, n.Failures = slices.Clone(n.Groups), slices.Clone(n.Failures)
			n.Keep(f, viewstest.Now())
		}
		return queue.Page{Rows: &n, Total: int64(len(n.Groups) + len(n.Failures) + len(n.Log))}, s.err
	case queue.ListRoutes, queue.ListConsumers, queue.ListEventTypes, queue.ListProducers: // lists that only verbs read
		return queue.Page{}, s.err
	case queue.ListCron:
		c := viewstest.Cron()
		return queue.Page{Rows: &c}, s.err
	case queue.ListEventSubscriptions:
		b := s.share
		return queue.Page{Rows: queue.EventSubscriptionList{Subscriptions: s.subscriptions, Broadcast: &b}, Total: int64(len(s.subscriptions))}, s.err
	case queue.ListResolution:
		r := s.resolve
		return queue.Page{Rows: &r}, s.err
	case queue.ListWhy:
		if s.unknown != nil {
			return queue.Page{}, s.unknown
		}
		w := viewstest.Why()
		w.Queue = queue.Clean(q.ID)
		return queue.Page{Rows: &w}, s.err
	case queue.ListAlertHistory:
		return queue.Page{Rows: s.history}, s.err
	}
	return queue.Page{}, errors.New("no such list")
}

// pageOf returns the page of rows that a query asks for.
func pageOf[T any](rows []T, q queue.Query) queue.Page {
	from, _ := strconv.Atoi(q.After)
	to := min(from+q.Limit, len(rows))
	return queue.Page{Rows: slices.Clone(rows[from:to]), Total: int64(len(rows)), Next: queue.Choose(to < len(rows), strconv.Itoa(to), "")}
}

// hangs adds n to the number of running reads (n is 1 or -1), if kind is the
// kind of list that gets no answer.
func (s *fakeStore) hangs(kind queue.ListKind, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind != s.stuck {
		return false
	}
	s.running += n
	s.begun += max(n, 0)
	return true
}

func (s *fakeStore) reading() (running, begun int) {
	s.set(func(s *fakeStore) { running, begun = s.running, s.begun })
	return running, begun
}

func (s *fakeStore) Plan(_ context.Context, r queue.Request) (queue.Plan, error) {
	var plan func(queue.Request) (queue.Plan, error)
	s.set(func(s *fakeStore) { s.plans, plan = append(s.plans, r), s.plan })
	if plan != nil {
		return plan(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := queue.Plan{Request: r, Count: int64(max(len(r.Targets), 1)), Command: "qtop " + string(r.Action) + " " + strings.Join(r.Targets, " ") + " --yes", Expect: "x"}
	p.Undo = actions.Registry().UndoCommand(r)
	if r.Action == queue.ActAdopt {
		p.Confirm, p.Request.Targets = "staging_copy", []string{"staging_copy"}
	}
	if r.Filter != "" {
		p.Count, p.Skipped = 4638, 2
		if r.Action == queue.ActJobCancel {
			p.Count, p.Skipped = 1216, 0
			p.Lines = []queue.PlanLine{{Label: "jobs", Value: queue.Clean("1,216 live")}}
			return p, s.err
		}
		p.Results = []queue.Outcome{
			{ID: "90990", Outcome: "skipped", Why: queue.Clean("requeued already by ben 00:05")},
			{ID: "90991", Outcome: "skipped", Why: queue.Clean("requeued already by ben 00:05")},
		}
		p.Lines = []queue.PlanLine{
			{Label: "dead letters", Value: queue.Clean("4,638, failed 23:02 to 00:14")},
			{Label: "endpoint", Value: queue.Clean("hooks.acme.example, last success 22:58, 0.0/s now")},
			{Label: "codes", Value: queue.Clean("HTTP_503 4,638")},
			{Label: "before", Value: queue.Clean("120 of them were requeued once")},
			{Label: "hosts", Value: queue.Clean("2 live hosts send webhooks")},
		}
	} else {
		p.Lines = []queue.PlanLine{{Label: "changes", Value: queue.Clean(fmt.Sprint(len(r.Targets), " row(s)"))}}
	}
	if r.Within != "" {
		p.Match = &queue.Match{Count: 4640, What: queue.Clean("hooks.acme.example:443 (4600), api.slow.example:443 (40)")}
	}
	return p, s.err
}

func (s *fakeStore) Apply(ctx context.Context, p queue.Plan) (queue.Result, error) {
	var takes time.Duration
	s.set(func(s *fakeStore) { s.applied, takes = append(s.applied, p), s.acting })
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return queue.Result{Action: p.Request.Action}, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != "" || s.err != nil {
		return queue.Result{Action: p.Request.Action, Refused: s.refuse}, s.err
	}
	r := queue.Result{Action: p.Request.Action, Plan: p.Lines, AuditID: 982, Done: p.Count, Skipped: p.Skipped}
	if p.Request.Action == queue.ActReveal {
		r.Payload = queue.Clean(cmp.Or(s.payload, `{"id":"evt_551200","api_key":"hidden-key","amount":12345678901234567890.10}`))
	}
	for i, id := range p.Request.Targets {
		r.Results = append(r.Results, queue.Outcome{ID: id, Outcome: "done", NewID: fmt.Sprint(400000 + i)})
	}
	return r, nil
}

// allowed returns the argument maxAge of each call of Snapshot. Like the
// methods below, it returns a copy, because the console may call the store at
// the same time.
func (s *fakeStore) allowed() (ages []time.Duration) {
	s.set(func(s *fakeStore) { ages = slices.Clone(s.ages) })
	return ages
}

func (s *fakeStore) snapped() (n int) { s.set(func(s *fakeStore) { n = len(s.snaps) }); return n }
func (s *fakeStore) busiest() (n int) { s.set(func(s *fakeStore) { n = s.most }); return n }

func (s *fakeStore) did() (p []queue.Plan) {
	s.set(func(s *fakeStore) { p = slices.Clone(s.applied) })
	return p
}

func (s *fakeStore) asked() (r []queue.Request) {
	s.set(func(s *fakeStore) { r = slices.Clone(s.plans) })
	return r
}

func (s *fakeStore) listed() (q []queue.Query) {
	s.set(func(s *fakeStore) { q = slices.Clone(s.lists) })
	return q
}

func (s *fakeStore) Changes() <-chan struct{} { return s.changes }

func (s *fakeStore) Link() queue.Link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// fakeHost is a Host without loops: it records which methods are called.
type fakeHost struct {
	mu    sync.Mutex
	st    queue.HostStatus
	calls []string
	wait  chan struct{} // Shutdown returns when it is closed; nil: at once
}

func newHost() *fakeHost { return &fakeHost{st: viewstest.Host()} }

func (h *fakeHost) say(call string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, call)
}

func (h *fakeHost) said() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.calls...)
}

func (h *fakeHost) Status() queue.HostStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.st
}

func (h *fakeHost) Start(loop string) error { h.say("start " + loop); return nil }
func (h *fakeHost) Drain(loop string) error { h.say("drain " + loop); return nil }
func (h *fakeHost) Stop(loop string) error  { h.say("stop " + loop); return nil }

func (h *fakeHost) Shutdown(ctx context.Context) error {
	h.say("shutdown")
	if h.wait != nil {
		select {
		case <-h.wait:
		case <-ctx.Done():
		}
	}
	return nil
}
