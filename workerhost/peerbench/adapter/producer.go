package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/enqueue"
)

// counts are the totals of this instance.
type counts struct {
	enqueued, completed, targetRate atomic.Int64
	depth                           atomic.Pointer[depth]
}

// depth is the number of unclaimed jobs, and how many jobs this instance had enqueued before they
// were counted.
type depth struct{ unclaimed, enqueued int64 }

// unclaimed returns the number of unclaimed jobs as last counted.
func (c *counts) unclaimed() int64 {
	if d := c.depth.Load(); d != nil {
		return d.unclaimed
	}
	return 0
}

// atMost returns how many jobs are unclaimed now at most, as far as this instance knows: those
// that were last counted, and all that it has enqueued since.
func (c *counts) atMost() int64 {
	if d := c.depth.Load(); d != nil {
		return d.unclaimed + c.enqueued.Load() - d.enqueued
	}
	return c.enqueued.Load()
}

// produce enqueues jobs until ctx ends: as the tokens request, at a rate (by elapsed time), or up
// to a queue depth.
func (a *adapter) produce(ctx context.Context, in io.Reader) {
	if a.tokens {
		a.produceTokens(ctx, in)
		return
	}
	fill := a.fill()
	var seq int64
	var credit float64
	last := time.Now()
	tick := time.NewTicker(a.batchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var n int
		if a.depthTarget {
			n = min(a.batchMax, a.targetDepth-int(a.counts.atMost()))
		} else {
			rate := a.currentRate()
			a.counts.targetRate.Store(int64(rate))
			elapsed := time.Since(last)
			last = last.Add(elapsed)
			credit += float64(rate) * elapsed.Seconds()
			n = min(a.batchMax, int(credit))
			credit -= float64(n)
		}
		seq = a.enqueue(ctx, seq, n, fill)
	}
}

// produceTokens enqueues as many jobs as the pacer of the comparison requests.
func (a *adapter) produceTokens(ctx context.Context, in io.Reader) {
	tokens := make(chan int, 1024)
	go func() {
		defer close(tokens)
		for lines := bufio.NewScanner(in); lines.Scan(); { // ends with the process
			text, found := strings.CutPrefix(lines.Text(), "ENQUEUE ")
			if n, err := strconv.Atoi(text); found && err == nil && n > 0 {
				select {
				case tokens <- n:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	fill := a.fill()
	var seq int64
	for {
		a.counts.targetRate.Store(int64(a.currentRate()))
		select {
		case <-ctx.Done():
			return
		case n, more := <-tokens:
			if !more {
				return
			}
			for ; n > 0 && ctx.Err() == nil; n -= a.batchMax {
				seq = a.enqueue(ctx, seq, min(n, a.batchMax), fill)
			}
		}
	}
}

// fill returns the text that gives a payload the configured length.
func (a *adapter) fill() string { return strings.Repeat("x", max(0, a.payload-48)) }

// currentRate returns the rate in the control file or, without that file, the rate of the
// environment.
func (a *adapter) currentRate() int {
	if a.rateFile == "" {
		return a.rate
	}
	text, err := os.ReadFile(a.rateFile)
	if err != nil {
		return a.rate
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil {
		return a.rate
	}
	return int(rate)
}

// enqueue enqueues n jobs with one call, or one job with the call for a single job, and returns
// the next number. Jobs that were refused are not enqueued again.
func (a *adapter) enqueue(ctx context.Context, seq int64, n int, fill string) int64 {
	if n < 1 {
		return seq
	}
	jobs := make([]enqueue.Job, n)
	sent := time.Now().UnixNano()
	for i := range jobs {
		text, err := json.Marshal(payload{seq + int64(i), sent, fill})
		if err != nil {
			panic(err) // numbers and a text can always be encoded
		}
		jobs[i] = enqueue.Job{Kind: jobKind, Domain: domain, Executor: "DOT", Payload: text}
	}
	call, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var err error
	if n == 1 {
		_, _, err = a.producer.Enqueue(call, jobs[0])
	} else {
		_, err = a.producer.EnqueueMany(call, jobs)
	}
	switch {
	case err == nil:
		a.counts.enqueued.Add(int64(n))
	case ctx.Err() == nil:
		fmt.Fprintln(os.Stderr, "qtop adapter: enqueue:", err)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return seq + int64(n)
}

// watchDepth counts the unclaimed jobs, five times a second, if this instance reports or needs
// their number.
func (a *adapter) watchDepth(ctx context.Context) {
	if a.instance != 0 && !a.depthTarget {
		return
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n := depth{enqueued: a.counts.enqueued.Load()}
		err := a.pool.QueryRow(ctx, "SELECT count(*) FROM public.job_queue WHERE status IN ('queued', 'retry_waiting')").Scan(&n.unclaimed)
		if err == nil {
			a.counts.depth.Store(&n)
		}
	}
}
