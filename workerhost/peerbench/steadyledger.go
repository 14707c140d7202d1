package main

// What the benchmark knows of each job, and the figures that follow from it.

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// steadyLedger holds the times of each numbered job, in nanoseconds since 1970.
type steadyLedger struct {
	mu                 sync.Mutex
	sent               []int64 // 0 = not inserted, or no answer
	started            []int64 // 0 = not started
	twice              []int64 // when jobs were started that had been started before
	unanswered         []int64 // when the inserts were sent that failed or got no answer
	records            []record
	acknowledged, seen int // inserted; inserted and started
}

// record is one finished job, as the queue recorded it; times in nanoseconds since 1970.
type record struct {
	n                   int
	inserted, completed int64
}

func extended(s []int64, n int) []int64 {
	if n < len(s) {
		return s
	}
	return append(s, make([]int64, n+1-len(s))...)
}

func (l *steadyLedger) tell(n int, sent int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok {
		l.unanswered = append(l.unanswered, sent)
		return
	}
	l.sent, l.started = extended(l.sent, n), extended(l.started, n)
	l.sent[n] = sent
	l.acknowledged++
	if l.started[n] != 0 {
		l.seen++
	}
}

func (l *steadyLedger) start(n int, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.started = extended(l.sent, n), extended(l.started, n)
	if l.started[n] != 0 {
		l.twice = append(l.twice, at)
		return
	}
	l.started[n] = at
	if l.sent[n] != 0 {
		l.seen++
	}
}

// waiting returns how many jobs are inserted and not started.
func (l *steadyLedger) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acknowledged - l.seen
}

// wait says how long the jobs that are left are waited for: until none has ended for quiet, and at
// most until bound.
type wait struct {
	quiet         time.Duration
	last, bound   time.Time // last is when a job was last seen to end
	waiting, left int       // the least yet seen: not started, and not ended
}

func (w *world) newWait(now time.Time) *wait {
	quiet := w.patience
	if w.who.gone != 0 {
		quiet = min(quiet, w.who.gone)
	}
	return &wait{quiet: quiet, last: now, bound: now.Add(w.drain), waiting: math.MaxInt, left: math.MaxInt}
}

// saw notes how many jobs are not started or have not ended.
func (p *wait) saw(now time.Time, waiting, left int) {
	if waiting < p.waiting || left < p.left && p.left != math.MaxInt { // the first number of records is no progress
		p.last = now
	}
	p.waiting, p.left = min(p.waiting, waiting), min(p.left, left)
}

// over reports whether the wait is over, and whether jobs still ended then.
func (p *wait) over(now time.Time) (over, draining bool) {
	if now.Sub(p.last) >= p.quiet {
		return true, false
	}
	return !now.Before(p.bound), true
}

// finish waits for the jobs that are left.
func (w *world) finish(ctx context.Context) error {
	const look = 5 * time.Second // without a start: then the records are read, which takes a while
	p := w.newWait(time.Now())
	for {
		now, every, left := time.Now(), 50*time.Millisecond, math.MaxInt
		waiting := w.ledger.waiting()
		p.saw(now, waiting, math.MaxInt)
		if waiting == 0 || now.Sub(p.last) >= look {
			err := w.readRecords(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil {
				left = w.ledger.unended(w.ledger.ended(w.who.recorded != ""), time.Unix(0, 0), now)
			}
			if left == 0 {
				return nil
			}
			every = time.Second
			p.saw(now, waiting, left)
			if over, draining := p.over(now); over {
				w.draining = draining
				return err
			}
		}
		if over, draining := p.over(now); over && draining {
			w.draining = true
			return w.readRecords(ctx)
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
}

// readRecords reads the finished jobs of a queue that keeps them.
func (w *world) readRecords(ctx context.Context) error {
	if w.who.recorded == "" {
		return nil
	}
	rows, _ := w.admin.Query(ctx, w.who.recorded)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r record, err error) {
		var inserted, completed time.Time
		err = row.Scan(&r.n, &inserted, &completed)
		r.inserted, r.completed = inserted.UnixNano(), completed.UnixNano()
		return r, err
	})
	if err != nil {
		return fmt.Errorf("reading the finished jobs: %w", err)
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.records = all
	return nil
}

// ended returns per job number when the job was completed, by the records of the queue, or when it
// was started; 0 = not yet.
func (l *steadyLedger) ended(recorded bool) []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !recorded {
		return slices.Clone(l.started)
	}
	ended := make([]int64, len(l.sent))
	for _, r := range l.records {
		if r.n >= 0 {
			ended = extended(ended, r.n)
			ended[r.n] = r.completed
		}
	}
	return ended
}

// unended returns how many jobs were inserted between from and to and have not ended.
func (l *steadyLedger) unended(ended []int64, from, to time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, sent := range l.sent {
		if sent != 0 && sent >= from.UnixNano() && sent < to.UnixNano() && (i >= len(ended) || ended[i] == 0) {
			n++
		}
	}
	return n
}

// depths returns the greatest number of jobs between from and to that were inserted and had not
// ended, by ten samples a second, and that number at the end.
func (l *steadyLedger) depths(ended []int64, from, to time.Time) (most, last int) {
	l.mu.Lock()
	var begins, ends []int64
	for i, sent := range l.sent {
		if sent != 0 {
			begins = append(begins, sent)
			if i < len(ended) && ended[i] != 0 {
				ends = append(ends, ended[i])
			}
		}
	}
	l.mu.Unlock()
	slices.Sort(begins)
	slices.Sort(ends)
	until := func(sorted []int64, at int64) int {
		n, _ := slices.BinarySearch(sorted, at+1)
		return n
	}
	const every = int64(100 * time.Millisecond)
	for at := from.UnixNano(); ; at += every {
		at = min(at, to.UnixNano())
		last = until(begins, at) - until(ends, at)
		most = max(most, last)
		if at == to.UnixNano() {
			return most, last
		}
	}
}

// endToEnd returns the 99th percentile of the milliseconds from insert to completion of the
// recorded jobs that were inserted between from and to; nil if there are none.
func (l *steadyLedger) endToEnd(from, to time.Time) *float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var took []float64
	for _, r := range l.records {
		if r.inserted >= from.UnixNano() && r.inserted < to.UnixNano() {
			took = append(took, float64(r.completed-r.inserted)/1e6)
		}
	}
	if len(took) == 0 {
		return nil
	}
	slices.Sort(took)
	return new(at(took, 0.99))
}

// starts returns the milliseconds from insert to start of the jobs that were inserted between
// from and to, sorted; +Inf for a job that was not started.
func (l *steadyLedger) starts(from, to time.Time) (ms []float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, sent := range l.sent {
		if sent < from.UnixNano() || sent >= to.UnixNano() {
			continue
		}
		if l.started[n] == 0 {
			ms = append(ms, math.Inf(1))
			continue
		}
		ms = append(ms, float64(l.started[n]-sent)/1e6)
	}
	slices.Sort(ms)
	return ms
}

func within(times []int64, from, to time.Time) (n int) {
	for _, t := range times {
		if t >= from.UnixNano() && t < to.UnixNano() {
			n++
		}
	}
	return n
}

// recovered returns the seconds from over until jobs start as before, that is, until in each of
// three seconds in a row the median start delay is at most twice that of the warm-up plus 5 ms.
// -1 = not before end.
func (l *steadyLedger) recovered(over, end time.Time, warm float64) float64 {
	good := 0
	for second := 0; ; second++ {
		from := over.Add(time.Duration(second) * time.Second)
		if !from.Before(end) {
			return -1
		}
		starts := l.starts(from, from.Add(time.Second))
		if len(starts) > 0 && at(starts, 0.5) <= 2*warm+5 {
			if good++; good == 3 {
				return float64(second - 2)
			}
			continue
		}
		good = 0
	}
}
