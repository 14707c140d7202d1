package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"
)

// records writes the output records as JSON lines.
type records struct {
	mu       sync.Mutex
	out      io.Writer
	system   string
	instance int
}

func (r *records) write(record map[string]any) error {
	record["instance_id"] = r.instance
	line, err := json.Marshal(record)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = r.out.Write(append(line, '\n'))
	return err
}

func (r *records) sample(at, metric string, value, window float64) {
	err := r.write(map[string]any{
		"t": at, "system": r.system, "kind": "adapter", "subject_kind": "adapter", "subject": "", "metric": metric,
		"value": value, "window_s": window,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "qtop adapter: writing a sample:", err)
	}
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

// sample writes every metric at each multiple of the sampling interval, and once more when ctx
// has ended.
func (a *adapter) sample(ctx context.Context) {
	last := time.Now()
	var enqueued, completed int64
	for ctx.Err() == nil {
		next := time.Now().Truncate(a.sampleEvery).Add(a.sampleEvery)
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(next)):
		}
		seconds := time.Since(last).Seconds()
		last = time.Now()
		e, c := a.counts.enqueued.Load(), a.counts.completed.Load()
		at, every := now(), a.sampleEvery.Seconds()
		for name, w := range map[string]*window{"claim": a.latency, "end_to_end": a.endToEnd} {
			for metric, v := range map[string]float64{"p50": w.quantile(0.5), "p95": w.quantile(0.95), "p99": w.quantile(0.99)} {
				a.records.sample(at, name+"_"+metric+"_ms", v, windowSeconds)
			}
		}
		a.records.sample(at, "enqueue_rate", float64(e-enqueued)/seconds, every)
		a.records.sample(at, "completion_rate", float64(c-completed)/seconds, every)
		if a.instance == 0 { // metrics that all instances share are reported once
			a.records.sample(at, "queue_depth", float64(a.counts.unclaimed()), 0)
			a.records.sample(at, "producer_target_rate", float64(a.counts.targetRate.Load()), 0)
		}
		enqueued, completed = e, c
	}
}

const windowSeconds = 30

// window is a histogram of the last 30 seconds in bounded memory: one part per second, with
// buckets that are 0.1 % wide.
type window struct {
	mu    sync.Mutex
	parts [windowSeconds + 1]part
	now   func() int64 // seconds since 1970
}

type part struct {
	second  int64
	buckets []uint32
}

const (
	bucketWidth = 1.001
	buckets     = 20_000 // cover 1 µs to 8 minutes
)

func newWindow() *window { return &window{now: func() int64 { return time.Now().Unix() }} }

func (w *window) add(d time.Duration) {
	second := w.now()
	at := int(math.Log(max(1, float64(d.Microseconds()))) / math.Log(bucketWidth))
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &w.parts[second%int64(len(w.parts))]
	if p.buckets == nil {
		p.buckets = make([]uint32, buckets)
	}
	if p.second != second {
		clear(p.buckets)
		p.second = second
	}
	p.buckets[min(at, buckets-1)]++
}

// quantile returns a quantile in milliseconds; 0 if there is no value.
func (w *window) quantile(q float64) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sum [buckets]uint64
	var total uint64
	for _, p := range w.parts {
		if p.buckets == nil || w.now()-p.second > windowSeconds {
			continue
		}
		for i, n := range p.buckets {
			sum[i] += uint64(n)
			total += uint64(n)
		}
	}
	if total == 0 {
		return 0
	}
	rank := min(total-1, uint64(q*float64(total)))
	for i, n := range sum {
		if rank < n {
			return math.Pow(bucketWidth, float64(i)+0.5) / 1000
		}
		rank -= n
	}
	return 0
}
