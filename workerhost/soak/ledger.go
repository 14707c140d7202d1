package main

// The ledger: which work producers were told is committed (acknowledged), and
// which requests the receiver saw. It is kept in memory, outside of the
// database and of qtop.

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/qtop/qtop/workerhost/soak/fault"
)

// A kill explains a repeated request if the host may have been killed before the answer to the
// first one was recorded in the database. Otherwise work was done twice without reason.
const (
	recordedWithin = 10 * time.Second // longest time from a request's answer to its record in the database
	readWithin     = time.Second      // longest time after which the receiver still reads a request of a killed host
)

// oneInAHundred is the share of jobs and of webhooks that are refused at their
// first attempt, so that the soak includes retries: those whose number n it
// divides.
const oneInAHundred = 100

// ledger counts jobs and webhooks by their number n.
type ledger struct {
	mu    sync.Mutex
	kinds map[string]*tally
	kills []fault.Fault
}

func newLedger() *ledger {
	return &ledger{kinds: map[string]*tally{"job": {}, "webhook": {}}}
}

// tally holds the counts for jobs or for webhooks.
type tally struct {
	acknowledged []bool
	doubt        int // how many inserts got no answer, so that the receiver may see that work or not
	seen         []time.Time
	done         int
	refused      map[int]bool
	again        []repeat
}

// repeat is a request that arrived again although the receiver had answered it.
type repeat struct {
	n            int
	first, again time.Time
}

func grown[T any](s []T, n int) []T {
	return append(s, make([]T, max(0, n+1-len(s)))...)
}

// tell records the answer that a producer received; err means that there was no answer.
func (l *ledger) tell(kind string, n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.kinds[kind]
	if err != nil {
		t.doubt++
		return
	}
	t.acknowledged = grown(t.acknowledged, n)
	t.acknowledged[n] = true
}

// see records a request to the receiver. It returns false when the receiver must refuse the
// request.
func (l *ledger) see(kind string, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.kinds[kind]
	if n%oneInAHundred == 0 && !t.refused[n] {
		if t.refused == nil {
			t.refused = map[int]bool{}
		}
		t.refused[n] = true
		return false
	}
	t.seen = grown(t.seen, n)
	now := time.Now()
	if first := t.seen[n]; !first.IsZero() {
		t.again = append(t.again, repeat{n, first, now})
	} else {
		t.done++
	}
	t.seen[n] = now
	return true
}

// killed records that a host was killed: from the signal until the process had ended.
func (l *ledger) killed(sent, ended time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kills = append(l.kills, fault.Fault{Name: "kill -9", From: sent, To: ended, After: readWithin})
}

// behind returns how many jobs or webhooks are acknowledged but not yet seen
// by the receiver (behind), and how many are seen (done).
func (l *ledger) behind(kind string) (behind, done int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.kinds[kind]
	return len(t.missing()), t.done
}

// missing returns the numbers n that were acknowledged to a producer and that the receiver never
// saw.
func (t *tally) missing() (out []int) {
	for n, acknowledged := range t.acknowledged {
		if acknowledged && (n >= len(t.seen) || t.seen[n].IsZero()) {
			out = append(out, n)
		}
	}
	return out
}

// result is the summary of the ledger for jobs or for webhooks at the end.
type result struct {
	acknowledged, doubt, refused int
	lost                         []int
	traced                       int      // done twice, explained by a kill between the answer and its record
	doubled                      []repeat // done twice without such a kill
}

func (l *ledger) result(kind string) result {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.kinds[kind]
	r := result{doubt: t.doubt, refused: len(t.refused), lost: t.missing()}
	for _, acknowledged := range t.acknowledged {
		if acknowledged {
			r.acknowledged++
		}
	}
	for _, a := range t.again {
		attempt := fault.Attempt{Start: a.first, End: a.first, Again: a.again}
		cut := slices.ContainsFunc(l.kills, func(k fault.Fault) bool { return k.Explains(attempt, recordedWithin) })
		if cut {
			r.traced++
		} else {
			r.doubled = append(r.doubled, a)
		}
	}
	return r
}

// ServeHTTP receives webhooks (/webhook) and jobs (/job).
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		N       *int
		Payload struct{ N *int }
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client disconnected because its host was killed, so no answer is needed
	}
	if err := json.Unmarshal(text, &body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kind, n := "webhook", body.N
	if r.URL.Path == "/job" {
		kind, n = "job", body.Payload.N
	}
	if n == nil || *n < 0 {
		http.Error(w, fmt.Sprintf("a %s without n", kind), http.StatusBadRequest)
		return
	}
	if !l.see(kind, *n) {
		http.Error(w, "refused once", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
