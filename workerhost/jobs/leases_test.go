package jobs

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/loop"
)

// Until its lease has ended, a job whose result was lost is not handed back as one of a lost claim,
// and its lease is not renewed.
func TestTokensOfLostResultsAreKept(t *testing.T) {
	t.Parallel()
	s := &leases{state: &state{Executor: &Executor{}, began: time.Now().Add(-time.Hour), l: loop.New("x", "", slog.Default()), pace: loop.NewPace(time.Second, 2), buffer: newBuffer()}}
	s.results = newResults(s.state, func() {})
	defer s.results.close(time.Now())
	add := func(ended time.Duration) *leaseGroup {
		c := &claim{sentAt: s.clock() - ended - 5*time.Minute, jobs: []work.Job{{Lease: 5 * time.Minute}}}
		c.jobs[0].Token = pgtype.UUID{Bytes: uuid.New(), Valid: true}
		s.open.Add(1)
		return s.add(c)[0].group
	}
	lost, ended, recorded := add(-time.Minute), add(time.Hour), add(-time.Minute)
	s.results.lost([]*run{&lost.runs[0], &ended.runs[0]})
	s.results.settle([]*run{&recorded.runs[0]})
	s.check(t.Context())
	require.Equal(t, []pgtype.UUID{lost.runs[0].job.Token}, s.tokens())
	require.False(t, s.checking, "nothing to renew")
}

// The flag of the lease length is lowered: leases that were renewed a while ago keep the new length
// from now, because the database still has the old one.
func TestLeasesAreShortenedFromNow(t *testing.T) {
	t.Parallel()
	s := &leases{state: &state{began: time.Now().Add(-time.Hour)}}
	group := func(left time.Duration) *leaseGroup {
		g := &leaseGroup{}
		g.length.Store(int64(300 * time.Second))
		g.from.Store(int64(s.clock() + left - 300*time.Second))
		return g
	}
	renewedLongAgo, nearlyOver := group(210*time.Second), group(10*time.Second)
	s.all = []*leaseGroup{renewedLongAgo, nearlyOver}
	s.shorten(30 * time.Second)
	require.InDelta(t, 30, (renewedLongAgo.until() - s.clock()).Seconds(), 1)
	require.InDelta(t, 10, (nearlyOver.until() - s.clock()).Seconds(), 1)
	require.EqualValues(t, 30*time.Second, nearlyOver.length.Load())
	s.shorten(time.Hour)
	require.EqualValues(t, 30*time.Second, nearlyOver.length.Load(), "a longer one counts from the next renewal")
}

// A job counts as started once its handler runs, and not while it waits for its payload: if its host dies then, it
// runs once more, also on its last attempt.
func TestAJobStartsWithItsHandler(t *testing.T) {
	t.Parallel()
	g := &leaseGroup{}
	g.length.Store(int64(time.Minute))
	r := &run{job: &work.Job{}, group: g}
	require.NotNil(t, r.start(t.Context(), 0, 0))
	require.False(t, r.startDue(1000))
	r.begin(1000)
	require.False(t, r.startDue(1000+slowTicks))
	require.True(t, r.startDue(1001+slowTicks))
}
