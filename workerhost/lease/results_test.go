// Results alone: what goes with one statement, what is tried again, and what one
// that is refused costs the others.
package lease

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// ledger is what became of results.
type ledger struct {
	mu             sync.Mutex
	recorded, lost []string
	statements     int
	errors         int
}

// results refuses "bad" for good, and everything while away says so.
func (g *ledger) results(away func() bool, lasts bool) *Results[string] {
	return NewResults(2, Recorder[string]{
		Record: func(_ context.Context, batch []string) error {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.statements++
			switch {
			case away():
				return &pgconn.PgError{Code: "57P01"}
			case slices.Contains(batch, "bad"):
				return &pgconn.PgError{Code: "23514"}
			case slices.Contains(batch, "other's"):
				return &pgconn.PgError{Code: "42501"}
			case len(batch) > 10 && slices.Contains(batch, "slow"):
				return &pgconn.PgError{Code: "57014"}
			}
			g.recorded = append(g.recorded, batch...)
			return nil
		},
		Lasts: func(string, time.Duration) bool { return lasts },
		Lost: func(batch []string, err error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.lost = append(g.lost, batch...)
		},
		Erred: func(error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.errors++
		},
		Said: func(s string) int { return len(s) },
	})
}

func never() bool { return false }

func TestResults(t *testing.T) {
	t.Parallel()
	many := slices.Repeat([]string{"good"}, 2*Most)
	soon := func() time.Time { return time.Now().Add(time.Minute) }
	t.Run("one that is refused costs no other", func(t *testing.T) {
		t.Parallel()
		g := &ledger{}
		r := g.results(never, true)
		r.Add(slices.Insert(slices.Clone(many), Most/2, "bad")...)
		r.Close(soon())
		require.Equal(t, many, g.recorded)
		require.Equal(t, []string{"bad"}, g.lost)
		require.Less(t, g.statements, 50, "halves, not one by one")
	})
	t.Run("repeated while the database is away", func(t *testing.T) {
		t.Parallel()
		g := &ledger{}
		times := 3
		r := g.results(func() bool { times--; return times >= 0 }, true)
		r.Add("good")
		r.Close(soon())
		require.Equal(t, []string{"good"}, g.recorded)
		require.Equal(t, 3, g.errors)
	})
	t.Run("past the lease too, and the host begins nothing meanwhile", func(t *testing.T) {
		t.Parallel()
		g := &ledger{}
		var back atomic.Bool
		r := g.results(func() bool { return !back.Load() }, false)
		r.Add("good", "good")
		require.Eventually(t, r.Stuck, time.Minute, time.Millisecond)
		back.Store(true)
		require.Eventually(t, func() bool { return !r.Stuck() }, time.Minute, time.Millisecond)
		r.Close(soon())
		require.Equal(t, []string{"good", "good"}, g.recorded)
		require.Empty(t, g.lost)
	})
	t.Run("in smaller statements where one is cancelled", func(t *testing.T) {
		t.Parallel()
		g := &ledger{}
		r := g.results(never, false)
		slow := slices.Repeat([]string{"slow"}, 100)
		r.Add(slow...)
		r.Close(soon())
		require.Equal(t, slow, g.recorded)
	})
	t.Run("one that this host may not record costs no other, and lasts as its lease does", func(t *testing.T) {
		t.Parallel()
		g := &ledger{}
		r := g.results(never, true)
		r.Add("good", "other's", "good")
		require.Eventually(t, func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.errors > 4 && len(g.recorded) == 2 }, time.Minute, time.Millisecond)
		require.False(t, r.Stuck())
		r.Close(time.Now().Add(100 * time.Millisecond))
		require.Equal(t, []string{"other's"}, g.lost)
		g = &ledger{}
		r = g.results(never, false)
		r.Add("other's")
		r.Close(soon())
		require.Equal(t, []string{"other's"}, g.lost)
	})
	t.Run("many that this host may not record hold it", func(t *testing.T) {
		t.Parallel()
		g := &ledger{}
		r := g.results(never, true)
		r.Add(slices.Repeat([]string{"other's"}, 20)...)
		require.Eventually(t, r.Stuck, time.Minute, time.Millisecond)
		r.Close(time.Now().Add(time.Millisecond))
		require.Len(t, g.lost, 20)
		require.False(t, r.Stuck())
	})
	t.Run("one that is refused for its text is recorded without it", func(t *testing.T) {
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
			Erred: func(error) {},
			Lost:  func([]*string, error) { recorded = append(recorded, "lost") },
			Plain: func(s *string) { *s = "" },
		})
		text := "text"
		r.Add(&text)
		r.Close(soon())
		require.Equal(t, []string{"plain"}, recorded)
	})
	t.Run("nor than the end that is given", func(t *testing.T) {
		t.Parallel()
		g := &ledger{}
		r := g.results(func() bool { return true }, true)
		r.Add("good")
		r.Close(time.Now().Add(100 * time.Millisecond))
		require.Equal(t, []string{"good"}, g.lost)
	})
	t.Run("many words go in several statements", func(t *testing.T) {
		t.Parallel()
		half, long := strings.Repeat("x", mostSaid/2), strings.Repeat("x", mostSaid+1)
		r := &Results[string]{rec: Recorder[string]{Said: func(s string) int { return len(s) }}, ring: make(chan struct{}, 1)}
		r.queue = []string{half, half, half, long, "", ""}
		var sizes []int
		for batch := r.take(); len(batch) > 0; batch = r.take() {
			sizes = append(sizes, len(batch))
		}
		require.Equal(t, []int{2, 1, 1, 2}, sizes)
	})
}

var errOther = errors.New("other")

// A claim outlives its loop, and ends when it is done.
func TestOutlive(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	longer, done := Outlive(ctx, func() time.Duration { return time.Hour })
	cancel(errOther)
	require.NoError(t, longer.Err())
	done()
	require.Error(t, longer.Err())
}
