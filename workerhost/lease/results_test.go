// Results alone: what goes with one statement, what is tried again, and what one
// that is refused costs the others.
package lease

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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
	t.Run("no longer than a lease lasts", func(t *testing.T) {
		t.Parallel()
		g := &ledger{}
		r := g.results(func() bool { return true }, false)
		r.Add("good", "good")
		r.Close(soon())
		require.Equal(t, []string{"good", "good"}, g.lost)
		require.Equal(t, 1, g.errors)
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
