package main

// Runs one contestant through one course and computes the figures of its phases.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// method is the version of how results are measured. It rises when a figure or a phase gets another
// meaning; results of another version in results.jsonl are ignored.
const method = 3

// result is one phase of one contestant, a line of results.jsonl. A nil figure was not measured
// for this contestant.
type result struct {
	Method     int       `json:"method"`
	Contestant string    `json:"contestant"`
	Load       string    `json:"load"`
	Phase      string    `json:"phase"`
	At         time.Time `json:"at"`
	Seconds    float64   `json:"seconds"`
	Planned    float64   `json:"planned_seconds"`
	Rate       int       `json:"rate"`            // jobs per second, before the factor of the phase
	Version    string    `json:"version"`         // of the contestant
	Server     string    `json:"server"`          // version of PostgreSQL
	Busy       float64   `json:"busy_share"`      // of the machine's processors just before the course, 0 to 1
	Outside    float64   `json:"outside_seconds"` // how long the course took beside its phases and its warm-up
	// Recorded says that the queue keeps its finished jobs: then Lost, PerSecond and the depths
	// count jobs until their recorded completion, and figures are per completed job. Otherwise
	// they count jobs until their start.
	Recorded bool `json:"recorded"`

	Inserted   int      `json:"inserted"`
	Unanswered int      `json:"unanswered"` // inserts that failed or got no answer
	Lost       int      `json:"lost"`       // inserted, not completed (else started), and none was any more for -patience
	Waiting    int      `json:"waiting"`    // not completed (else started) at the end of -drain, while others still were
	Twice      int      `json:"twice"`      // started more than once
	Restarts   int      `json:"restarts"`   // how often the host ended by itself and was started again
	StartP50   *float64 `json:"start_p50_ms"`
	StartP95   *float64 `json:"start_p95_ms"`
	StartP99   *float64 `json:"start_p99_ms"`
	EndP99     *float64 `json:"end_to_end_p99_ms"` // insert → completion, as the queue recorded both
	PerSecond  float64  `json:"completed_per_second"`
	DepthMax   int      `json:"depth_max"`
	DepthEnd   int      `json:"depth_end"`
	DeadMax    *float64 `json:"dead_rows_max"`
	Bytes      *float64 `json:"database_bytes"` // database size at the end of the phase
	WAL        *float64 `json:"wal_bytes_per_job"`
	Commits    *float64 `json:"commits_per_job"`
	CPU        *float64 `json:"server_cpu_seconds_per_1000_jobs"`
	Snapshot   *float64 `json:"snapshot_p50_ms"`
	SnapMax    *float64 `json:"snapshot_max_ms"`
	Recovered  *float64 `json:"recovered_seconds"` // -1 = the course ended before the recovery

	// Beside counts what happened in the course outside of its phases; it is a field of the first
	// phase's result.
	Beside *beside `json:"beside,omitempty"`

	// Tenths holds the median start delay in each tenth of the phase, in ms, for the chart; 0 =
	// no job.
	Tenths []float64 `json:"start_p50_ms_tenths"`
}

// beside counts jobs of the warm-up, and of the moments between phases and after the last one.
type beside struct {
	Lost       int `json:"lost"`
	Waiting    int `json:"waiting"`
	Twice      int `json:"twice"`
	Unanswered int `json:"unanswered"`
	Restarts   int `json:"restarts"`
}

// span holds the observations of one phase.
type span struct {
	phase       phase
	planned     time.Duration
	begin, end  time.Time
	over        time.Time // when the last disturbance ended
	dead, bytes []float64
	snapshots   []float64
	before      counters
	after       counters
}

// counters are the values of the server's counters, which never decrease.
type counters struct {
	wal, commits float64
	cpu          float64
	err          error
}

func (s *steadyRun) drive(ctx context.Context, who contestant, c course) ([]result, error) {
	began := time.Now()
	share := busyShare(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	w, err := s.open(ctx, who)
	if err != nil {
		return nil, err
	}
	spans, warm, err := w.play(ctx, c)
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	var rs []result
	for _, sp := range spans {
		r := w.result(sp, warm)
		r.Busy = share
		rs = append(rs, r)
	}
	rs[0].Beside = w.beside(rs)
	if err := w.close(); err != nil { // the course is measured nevertheless
		s.say("%s, %s: at the end: %v", who.name, c.name(), err)
	}
	outside := time.Since(began) - s.warmUp
	for _, sp := range spans {
		outside -= sp.end.Sub(sp.begin)
	}
	for i := range rs {
		rs[i].Outside = outside.Seconds()
	}
	s.say("%s, %s: %.1f s beside phases and warm-up", who.name, c.name(), outside.Seconds())
	return rs, nil
}

// play runs the warm-up and the phases, and waits for the remaining jobs. warm is the median
// start delay in the warm-up, in ms.
func (w *world) play(ctx context.Context, c course) (spans []*span, warm float64, err error) {
	if err := w.firstJob(ctx); err != nil {
		return nil, 0, err
	}
	began := time.Now()
	w.producer.setRate(w.rate)
	if err := pause(ctx, w.warmUp); err != nil {
		return nil, 0, err
	}
	warmed := time.Now()
	meter := newCPUMeter(w)
	defer meter.stop()
	for _, p := range c {
		sp, err := w.observe(ctx, p, meter)
		if err != nil {
			return nil, 0, err
		}
		spans = append(spans, sp)
		w.say("%s, %s: %d not started at the end", w.who.name, p.name, w.ledger.waiting())
	}
	w.producer.setRate(0)
	err = w.producer.stop()
	w.producer = nil
	if err == nil {
		err = w.finish(ctx)
	}
	starts := w.ledger.starts(began, warmed)
	warm = at(starts, 0.5)
	return spans, warm, errors.Join(err, w.ended())
}

// firstJob waits until one job was handled, because then the host is ready.
func (w *world) firstJob(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	w.producer.setRate(10)
	for {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("no job was started within a minute; see %s", w.log.Name())
		}
		w.ledger.mu.Lock()
		seen := w.ledger.seen
		w.ledger.mu.Unlock()
		if seen > 0 {
			return nil
		}
		if err := w.ended(); err != nil {
			return err
		}
		if w.hosts.ended(time.Unix(0, 0), time.Now()) > 5 {
			return fmt.Errorf("the host ends again and again; see %s", w.log.Name())
		}
	}
}

// observe runs a phase and takes samples meanwhile.
func (w *world) observe(ctx context.Context, p phase, meter *cpuMeter) (*span, error) {
	length := w.planned(w.who, p)
	sp := &span{phase: p, planned: length, before: w.counters(ctx, meter), begin: time.Now()}
	sampling, stop := context.WithCancel(ctx)
	var samplers sync.WaitGroup
	samplers.Go(func() { w.sampleTables(sampling, sp) })
	if w.who.watched != "" {
		samplers.Go(func() { w.sampleSnapshots(sampling, sp) })
	}
	var err error
	sp.over, err = p.during(ctx, w, length)
	sp.end = time.Now()
	stop()
	samplers.Wait()
	sp.after = w.counters(ctx, meter)
	return sp, err
}

// planned returns the length of a phase of a contestant.
func (o *steadyOptions) planned(who contestant, p phase) time.Duration {
	if p.name == idleInTx && who.long {
		return o.idleInTx
	}
	return o.length
}

// sampleTables reads dead rows and the database size every five seconds. It leaves out a sample
// that fails because of the phase.
func (w *world) sampleTables(ctx context.Context, sp *span) {
	for every := min(5*time.Second, w.length/4); ; {
		var dead, bytes float64
		if w.admin.QueryRow(ctx, `SELECT COALESCE(sum(n_dead_tup), 0)::float8, pg_database_size(current_database())::float8
			FROM pg_stat_user_tables`).Scan(&dead, &bytes) == nil {
			sp.dead, sp.bytes = append(sp.dead, dead), append(sp.bytes, bytes)
		}
		if pause(ctx, every) != nil {
			return
		}
	}
}

// sampleSnapshots asks for the snapshot as a second console does. It keeps the duration of each
// snapshot that the database computed, also of those that it computed for the other console.
func (w *world) sampleSnapshots(ctx context.Context, sp *span) {
	var last time.Time
	for pause(ctx, time.Second) == nil {
		var taken time.Time
		var ms float64
		if w.viewer.QueryRow(ctx, "SELECT taken_at, took_ms::float8 FROM public.fn_queue_picture('1 second'::interval)").Scan(&taken, &ms) == nil && taken.After(last) {
			last, sp.snapshots = taken, append(sp.snapshots, ms)
		}
	}
}

func (w *world) counters(ctx context.Context, meter *cpuMeter) (c counters) {
	c.cpu = meter.read()
	c.err = w.admin.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8,
		(SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())::float8`).Scan(&c.wal, &c.commits)
	return c
}

// result computes the figures of a phase.
func (w *world) result(sp *span, warm float64) result {
	l := w.ledger
	seconds := sp.end.Sub(sp.begin).Seconds()
	r := result{
		Method: method, Contestant: w.who.name, Load: w.who.load, Phase: sp.phase.name, At: sp.begin.UTC(), Seconds: seconds,
		Planned: sp.planned.Seconds(), Rate: w.rate, Version: w.who.version, Recorded: w.who.recorded != "",
	}
	if w.server != nil {
		r.Server = "PostgreSQL " + w.server.Version()
	}
	if w.hosts != nil {
		r.Restarts = w.hosts.ended(sp.begin, sp.end)
	}
	starts := l.starts(sp.begin, sp.end)
	r.Inserted = len(starts)
	if len(starts) > 0 {
		for _, q := range []struct {
			to **float64
			at float64
		}{{&r.StartP50, 0.5}, {&r.StartP95, 0.95}, {&r.StartP99, 0.99}} {
			if v := at(starts, q.at); !math.IsInf(v, 1) {
				*q.to = new(v)
			}
		}
	}
	ended := l.ended(r.Recorded)
	if left := l.unended(ended, sp.begin, sp.end); w.draining {
		r.Waiting = left
	} else {
		r.Lost = left
	}
	r.EndP99 = l.endToEnd(sp.begin, sp.end)
	done := within(ended, sp.begin, sp.end)
	r.PerSecond = float64(done) / seconds
	r.Unanswered, r.Twice = within(l.unanswered, sp.begin, sp.end), within(l.twice, sp.begin, sp.end)
	r.DepthMax, r.DepthEnd = l.depths(ended, sp.begin, sp.end)
	if len(sp.dead) > 0 {
		r.DeadMax, r.Bytes = new(slices.Max(sp.dead)), new(sp.bytes[len(sp.bytes)-1])
	}
	if b, a := sp.before, sp.after; done > 0 && a.err == nil && b.err == nil {
		r.WAL, r.CPU = new((a.wal-b.wal)/float64(done)), new((a.cpu-b.cpu)/float64(done)*1000)
		if a.commits > b.commits { // the statistics of a server are lost in a crash
			r.Commits = new((a.commits - b.commits) / float64(done))
		}
	}
	if len(sp.snapshots) > 0 {
		slices.Sort(sp.snapshots)
		r.Snapshot, r.SnapMax = new(at(sp.snapshots, 0.5)), new(slices.Max(sp.snapshots))
	}
	if !sp.over.IsZero() {
		r.Recovered = new(l.recovered(sp.over, sp.end, warm))
	}
	for i := range 10 {
		from := sp.begin.Add(sp.end.Sub(sp.begin) * time.Duration(i) / 10)
		tenth := at(l.starts(from, from.Add(sp.end.Sub(sp.begin)/10)), 0.5)
		if math.IsInf(tenth, 1) {
			tenth = -1
		}
		r.Tenths = append(r.Tenths, tenth)
	}
	return r
}

// beside returns what the results of the phases do not count; nil if that is nothing.
func (w *world) beside(rs []result) *beside {
	l := w.ledger
	b := beside{Twice: len(l.twice), Unanswered: len(l.unanswered)}
	if left := l.unended(l.ended(w.who.recorded != ""), time.Unix(0, 0), time.Now()); w.draining {
		b.Waiting = left
	} else {
		b.Lost = left
	}
	if w.hosts != nil {
		b.Restarts = w.hosts.ended(time.Unix(0, 0), time.Now())
	}
	for _, r := range rs {
		b.Lost -= r.Lost
		b.Waiting -= r.Waiting
		b.Twice -= r.Twice
		b.Unanswered -= r.Unanswered
		b.Restarts -= r.Restarts
	}
	if b == (beside{}) {
		return nil
	}
	return &b
}

// at returns a quantile of sorted values; 0 if there are none.
func at(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// cpuMeter adds up the processor time of the server, also over restarts of the server.
type cpuMeter struct {
	w    *world
	mu   sync.Mutex
	pid  int
	last float64
	sum  float64
	end  context.CancelFunc
	done chan struct{}
}

func newCPUMeter(w *world) *cpuMeter {
	ctx, cancel := context.WithCancel(context.Background())
	m := &cpuMeter{w: w, end: cancel, done: make(chan struct{})}
	m.pid, m.last = w.cpu()
	go func() {
		defer close(m.done)
		for pause(ctx, 200*time.Millisecond) == nil {
			m.read()
		}
	}()
	return m
}

func (m *cpuMeter) stop() {
	m.end()
	<-m.done
}

// read returns the processor seconds since the meter began.
func (m *cpuMeter) read() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	pid, now := m.w.cpu()
	if pid != m.pid {
		m.pid, m.last = pid, 0
	}
	m.sum += max(0, now-m.last)
	m.last = max(now, m.last) // if a process ends while cpu reads, its time is not counted twice
	return m.sum
}
