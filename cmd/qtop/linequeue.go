package main

// Lines that are written without waiting for their reader.

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// lineQueue is a writer whose Write does not wait for the writer below it once start was called:
// another goroutine passes the lines on. A host logs through one, because a write to a pipe that
// nobody reads, or to a file system that hangs, does not return, and every loop that logs would
// wait for it. Lines that find mostWaiting bytes before them are left out, and so are lines that
// cannot be written. As soon as a line can be written again, one says how many are missing, in the
// place of the gap.
type lineQueue struct {
	w io.Writer

	mu      sync.Mutex
	changed *sync.Cond // nil: not started
	lines   [][]byte
	size    int  // bytes in lines
	leftOut int  // lines since there was no room
	idle    bool // every line that came is written
	ended   bool
}

const (
	mostWaiting = 1 << 20     // bytes, several thousand lines
	flushWithin = time.Second // how long a program that ends waits for the reader of its log
)

// start begins to pass lines on. missing writes to w that n lines are missing.
func (q *lineQueue) start(missing func(w io.Writer, n int)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed, q.idle = sync.NewCond(&q.mu), true
	go q.pass(missing)
}

// Write takes whole lines. It returns len(p), also where they are left out.
func (q *lineQueue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.changed == nil:
		return q.w.Write(p)
	case q.ended:
	case q.leftOut > 0 || q.size > 0 && q.size+len(p) > mostWaiting:
		q.leftOut++
	default:
		q.lines, q.size, q.idle = append(q.lines, bytes.Clone(p)), q.size+len(p), false
		q.changed.Broadcast()
	}
	return len(p), nil
}

func (q *lineQueue) pass(missing func(w io.Writer, n int)) {
	out, lost := &lineWriter{w: q.w}, 0
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.lines) == 0 {
			q.idle = true
			q.changed.Broadcast()
			if q.ended {
				return
			}
			q.changed.Wait()
		}
		lines, left := q.lines, q.leftOut
		q.lines, q.size, q.leftOut = nil, 0, 0
		q.mu.Unlock()
		for _, line := range lines {
			if _, err := out.Write(line); err != nil {
				lost++
			}
		}
		if lost += left; lost > 0 {
			if missing(out, lost); out.err == nil {
				lost = 0
			}
		}
		q.mu.Lock()
	}
}

// end waits until every line is written, for limit at most, and reports whether it is. What is
// written from then on is dropped.
func (q *lineQueue) end(limit time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.changed == nil {
		return true
	}
	q.ended = true
	q.changed.Broadcast()
	late := false
	defer time.AfterFunc(limit, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		late = true
		q.changed.Broadcast()
	}).Stop()
	for !q.idle && !late {
		q.changed.Wait()
	}
	return q.idle
}

// Unwrap returns the underlying writer, which may be a terminal.
func (q *lineQueue) Unwrap() io.Writer { return q.w }

// lineWriter begins a new line after one of which only a part could be written. err is the error of
// the last line.
type lineWriter struct {
	w    io.Writer
	torn bool
	err  error
}

func (w *lineWriter) Write(p []byte) (n int, err error) {
	if w.torn {
		p = append([]byte("\n"), p...)
	}
	n, w.err = w.w.Write(p)
	if n > 0 {
		w.torn = n < len(p)
	}
	return n, w.err
}

// Unwrap returns the underlying writer, which may be a terminal.
func (w *lineWriter) Unwrap() io.Writer { return w.w }
