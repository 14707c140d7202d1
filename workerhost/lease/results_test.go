// Tests of Results without a database: how results are divided into statements, which statements
// are repeated, and that one refused result does not affect the others.
package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// outcomes counts statements and errors, and collects the recorded and the lost results of a
// test.
type outcomes struct {
	mu             sync.Mutex
	recorded, lost []string
	statements     int
	errors         int
}

// results makes a Results whose Recorder simulates a database: it refuses the
// result "bad" for ever and "other's" as not permitted; it cancels a batch
// that contains "slow" and others; and it fails for everything while
// unavailable returns true.
func (out *outcomes) results(unavailable func() bool, leaseLasts bool) *Results[string] {
	return NewResults(2, Recorder[string]{
		Record: func(_ context.Context, batch []string) error {
			out.mu.Lock()
			defer out.mu.Unlock()
			out.statements++
			switch {
			case unavailable():
				return &pgconn.PgError{Code: "57P01"}
			case slices.Contains(batch, "bad"):
				return &pgconn.PgError{Code: "23514"}
			case slices.Contains(batch, "other's"):
				return &pgconn.PgError{Code: "42501"}
			case slices.Contains(batch, "locked"):
				return &pgconn.PgError{Code: "55P03"}
			case len(batch) > 10 && slices.Contains(batch, "slow"):
				return &pgconn.PgError{Code: "57014"}
			}
			out.recorded = append(out.recorded, batch...)
			return nil
		},
		LeaseLeft: func(string) time.Duration { return map[bool]time.Duration{true: time.Hour}[leaseLasts] },
		OnLost: func(batch []string, err error) {
			out.mu.Lock()
			defer out.mu.Unlock()
			out.lost = append(out.lost, batch...)
		},
		OnError: func(error) {
			out.mu.Lock()
			defer out.mu.Unlock()
			out.errors++
		},
		TextBytes: func(s string) int { return len(s) },
	})
}

// lockable simulates a database in which other sessions have locked the rows of some results.
func lockable(out *outcomes, locked map[string]bool) Recorder[string] {
	return Recorder[string]{
		Record: func(ctx context.Context, batch []string) error {
			out.mu.Lock()
			defer out.mu.Unlock()
			out.statements++
			if slices.ContainsFunc(batch, func(s string) bool { return locked[s] }) {
				return &pgconn.PgError{Code: "55P03"}
			}
			if ctx.Err() == nil {
				out.recorded = append(out.recorded, batch...)
			}
			return ctx.Err()
		},
		Apart: func(_ context.Context, batch []string, err error) (held, others []string) {
			out.mu.Lock()
			defer out.mu.Unlock()
			for _, s := range batch {
				if locked[s] {
					held = append(held, s)
				} else {
					others = append(others, s)
				}
			}
			return held, others
		},
		LeaseLeft: func(string) time.Duration { return 0 },
		OnLost: func(batch []string, _ error) {
			out.mu.Lock()
			defer out.mu.Unlock()
			out.lost = append(out.lost, batch...)
		},
		OnError: func(error) {
			out.mu.Lock()
			defer out.mu.Unlock()
			out.errors++
		},
	}
}

// A lease is renewed while its result is not recorded; what counts is when it would have ended.
func TestRefusedResultIsLostAtTheEndOfItsLease(t *testing.T) {
	t.Parallel()
	lost := make(chan string, 1)
	r := NewResults(1, Recorder[string]{
		Record:    func(context.Context, []string) error { return &pgconn.PgError{Code: "P0001"} },
		LeaseLeft: func(string) time.Duration { return 100 * time.Millisecond },
		OnLost:    func(batch []string, _ error) { lost <- batch[0] },
		OnError:   func(error) {},
	})
	r.Add("refused")
	select {
	case one := <-lost:
		require.Equal(t, "refused", one)
	case <-time.After(time.Minute):
		require.Fail(t, "it is retried for ever")
	}
	r.Close(time.Now())
}

func never() bool { return false }

func TestResults(t *testing.T) {
	t.Parallel()
	many := slices.Repeat([]string{"good"}, 2*MaxBatch)
	soon := func() time.Time { return time.Now().Add(time.Minute) }
	t.Run("a refused result costs no other", func(t *testing.T) {
		t.Parallel()
		out := &outcomes{}
		r := out.results(never, true)
		r.Add(slices.Insert(slices.Clone(many), MaxBatch/2, "bad")...)
		r.Close(soon())
		require.Equal(t, many, out.recorded)
		require.Equal(t, []string{"bad"}, out.lost)
		require.Less(t, out.statements, 50, "the batch is split in halves, not sent one by one")
	})
	t.Run("repeated while the database is away", func(t *testing.T) {
		t.Parallel()
		out := &outcomes{}
		times := 3
		r := out.results(func() bool { times--; return times >= 0 }, true)
		r.Add("good")
		r.Close(soon())
		require.Equal(t, []string{"good"}, out.recorded)
		require.Equal(t, 3, out.errors)
	})
	t.Run("repeated after the lease expired, and the host begins no work meanwhile", func(t *testing.T) {
		t.Parallel()
		out := &outcomes{}
		var back atomic.Bool
		r := out.results(func() bool { return !back.Load() }, false)
		r.Add("good", "good")
		require.Eventually(t, r.Stuck, time.Minute, time.Millisecond)
		back.Store(true)
		require.Eventually(t, func() bool { return !r.Stuck() }, time.Minute, time.Millisecond)
		r.Close(soon())
		require.Equal(t, []string{"good", "good"}, out.recorded)
		require.Empty(t, out.lost)
	})
	t.Run("a cancelled statement is repeated in smaller ones", func(t *testing.T) {
		t.Parallel()
		out := &outcomes{}
		r := out.results(never, false)
		slow := slices.Repeat([]string{"slow"}, 100)
		r.Add(slow...)
		r.Close(soon())
		require.Equal(t, slow, out.recorded)
	})
	t.Run("a result that this host may not record costs no other and is retried while its lease lasts", func(t *testing.T) {
		t.Parallel()
		out := &outcomes{}
		r := out.results(never, true)
		r.Add("good", "other's", "good")
		require.Eventually(t, func() bool { out.mu.Lock(); defer out.mu.Unlock(); return out.errors > 4 && len(out.recorded) == 2 }, time.Minute, time.Millisecond)
		require.False(t, r.Stuck())
		r.Close(time.Now().Add(100 * time.Millisecond))
		require.Equal(t, []string{"other's"}, out.lost)
		out = &outcomes{}
		r = out.results(never, false)
		r.Add("other's")
		r.Close(soon())
		require.Equal(t, []string{"other's"}, out.lost)
	})
	t.Run("a result whose row another session has locked costs no other and is retried without end", func(t *testing.T) {
		t.Parallel()
		out := &outcomes{}
		r := out.results(never, false)
		r.Add("good", "locked", "good")
		require.Eventually(t, func() bool { out.mu.Lock(); defer out.mu.Unlock(); return out.errors > 4 && len(out.recorded) == 2 }, time.Minute, time.Millisecond)
		require.False(t, r.Stuck())
		r.Close(time.Now().Add(10 * time.Millisecond))
		require.Equal(t, []string{"locked"}, out.lost)
	})
	t.Run("results whose rows other sessions have locked are sent apart, and are recorded when they are free", func(t *testing.T) {
		t.Parallel()
		out := &outcomes{}
		locked := map[string]bool{"a": true, "b": true, "c": true}
		r := NewResults(2, lockable(out, locked))
		r.Add(slices.Concat([]string{"a"}, many, []string{"b", "c"})...)
		require.Eventually(t, func() bool { out.mu.Lock(); defer out.mu.Unlock(); return len(out.recorded) == len(many) }, time.Minute, time.Millisecond)
		out.mu.Lock()
		require.Less(t, out.statements, 30)
		delete(locked, "b")
		out.mu.Unlock()
		require.Eventually(t, func() bool { out.mu.Lock(); defer out.mu.Unlock(); return slices.Contains(out.recorded, "b") }, time.Minute, time.Millisecond)
		require.False(t, r.Stuck())
		out.mu.Lock()
		clear(locked)
		out.mu.Unlock()
		require.Eventually(t, func() bool { out.mu.Lock(); defer out.mu.Unlock(); return len(out.recorded) == len(many)+3 }, time.Minute, time.Millisecond)
		r.Close(soon())
		require.Empty(t, out.lost)
	})
	t.Run("results whose rows are locked are not tried one by one, and do not make the host stuck", func(t *testing.T) {
		t.Parallel()
		out := &outcomes{}
		locked := map[string]bool{}
		r := NewResults(1, lockable(out, locked))
		for i := range 2 * maxRefused {
			one := fmt.Sprint(i)
			out.mu.Lock()
			locked[one] = true
			out.mu.Unlock()
			r.Add(one)
			require.Eventually(t, func() bool { out.mu.Lock(); defer out.mu.Unlock(); return out.statements == i+1 }, time.Minute, time.Millisecond)
		}
		require.False(t, r.Stuck())
		time.Sleep(4 * minPause)
		out.mu.Lock()
		require.Equal(t, 2*maxRefused, out.statements)
		clear(locked)
		out.mu.Unlock()
		require.Eventually(t, func() bool { out.mu.Lock(); defer out.mu.Unlock(); return len(out.recorded) == 2*maxRefused }, time.Minute, time.Millisecond)
		r.Close(soon())
		require.Empty(t, out.lost)
	})
	t.Run("at the end the results that wait for locked rows leave the others their time", func(t *testing.T) {
		t.Parallel()
		out := &outcomes{}
		r := NewResults(0, lockable(out, map[string]bool{"locked": true})) // a writer may end before it sees the last results
		r.later.Go(func() { r.sendLocked([]string{"locked", "locked"}, &pgconn.PgError{Code: "55P03"}) })
		r.Add("good")
		r.Close(time.Now().Add(100 * time.Millisecond))
		require.Equal(t, []string{"good"}, out.recorded)
		require.Equal(t, []string{"locked", "locked"}, out.lost)
	})
	t.Run("many results that this host may not record make it stuck", func(t *testing.T) {
		t.Parallel()
		out := &outcomes{}
		r := out.results(never, true)
		r.Add(slices.Repeat([]string{"other's"}, 20)...)
		require.Eventually(t, r.Stuck, time.Minute, time.Millisecond)
		r.Close(time.Now().Add(time.Millisecond))
		require.Len(t, out.lost, 20)
		require.False(t, r.Stuck())
	})
	t.Run("a result that is refused for its text is recorded without it", func(t *testing.T) {
		t.Parallel()
		var recorded []string
		r := NewResults(1, Recorder[*string]{
			Record: func(_ context.Context, batch []*string) error {
				if *batch[0] != "" {
					return &pgconn.PgError{Code: "22021"}
				}
				recorded = append(recorded, "plain")
				return nil
			},
			OnError:  func(error) {},
			OnLost:   func([]*string, error) { recorded = append(recorded, "lost") },
			DropText: func(s *string) { *s = "" },
		})
		text := "text"
		r.Add(&text)
		r.Close(soon())
		require.Equal(t, []string{"plain"}, recorded)
	})
	t.Run("a result that is refused for its text after its row was locked", func(t *testing.T) {
		t.Parallel()
		for refusedAlways, want := range map[bool]string{false: "plain", true: "lost"} {
			var answers []string
			got := make(chan string, 1)
			r := NewResults(1, Recorder[*string]{
				Record: func(_ context.Context, batch []*string) error {
					answers = append(answers, *batch[0])
					switch {
					case len(answers) == 1:
						return &pgconn.PgError{Code: "55P03"}
					case *batch[0] != "" || refusedAlways:
						return &pgconn.PgError{Code: "23514"}
					}
					got <- "plain"
					return nil
				},
				OnError:  func(error) {},
				OnLost:   func([]*string, error) { got <- "lost" },
				DropText: func(s *string) { *s = "" },
			})
			text := "text"
			r.Add(&text)
			select {
			case end := <-got:
				require.Equal(t, want, end)
			case <-time.After(time.Minute):
				require.Fail(t, "it is retried for ever")
			}
			r.Close(soon())
			require.Equal(t, []string{"text", "text", ""}, answers)
			require.False(t, r.Stuck())
		}
	})
	t.Run("repeated no longer than the deadline of Close", func(t *testing.T) {
		t.Parallel()
		out := &outcomes{}
		r := out.results(func() bool { return true }, true)
		r.Add("good")
		r.Close(time.Now().Add(100 * time.Millisecond))
		require.Equal(t, []string{"good"}, out.lost)
	})
	t.Run("long texts are sent in several statements", func(t *testing.T) {
		t.Parallel()
		half, long := strings.Repeat("x", maxTextBytes/2), strings.Repeat("x", maxTextBytes+1)
		r := &Results[string]{rec: Recorder[string]{TextBytes: func(s string) int { return len(s) }}, pending: make(chan struct{}, 1)}
		r.queue = []string{half, half, half, long, "", ""}
		var sizes []int
		for batch := r.nextBatch(); len(batch) > 0; batch = r.nextBatch() {
			sizes = append(sizes, len(batch))
		}
		require.Equal(t, []int{2, 1, 1, 2}, sizes)
	})
}

var errOther = errors.New("other")

// Outlive lets a claim finish after the context of its loop has ended, and ends when the claim
// does.
func TestOutlive(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	longer, done := Outlive(ctx, func() time.Duration { return time.Hour })
	cancel(errOther)
	require.NoError(t, longer.Err())
	done()
	require.Error(t, longer.Err())
}
