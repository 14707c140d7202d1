package workerhost_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// judge compares the ledger with the database, fails the test if work was lost
// or done twice without a fault that explains it, and prints the report.
func (d *drill) judge(t *testing.T, seed uint64, lasted, settled time.Duration) {
	t.Helper()
	w := d.world
	lostJobs, lostEvents := d.lost(t)
	givenUp, err := d.givenUp(t)
	require.NoError(t, err)
	lostJobs = without(lostJobs, givenUp)
	traced := map[string]int{}
	var untraced []string
	again := func(what string, n int, host string, first, next time.Time) {
		fault := d.log.explain(host, first, next)
		if fault == "" {
			untraced = append(untraced, fmt.Sprintf("%s %d, first at %s by %s, again at %s", what, n, first.Format(clock), host, next.Format(clock)))
			return
		}
		traced[what+" after "+fault]++
	}
	for n, all := range d.handled(t) {
		for i := 1; i < len(all); i++ {
			again("job", n, all[i-1].host, all[i-1].at, all[i].at)
		}
	}
	at, ids := d.requests()
	otherIDs := 0
	for n, all := range at {
		for i := 1; i < len(all); i++ {
			again("webhook", n, "", all[i-1], all[i])
		}
		if len(ids[n]) > 1 {
			otherIDs++
		}
	}
	outcomes := "SELECT count(*)::int FROM (SELECT 1 FROM public.job_history WHERE job_kind = 'drill' GROUP BY job_id HAVING count(*) > 1) x"
	twice := w.int(outcomes) + w.int("SELECT count(*)::int FROM (SELECT 1 FROM public.job_history WHERE job_kind = 'drill' GROUP BY idempotency_key HAVING count(*) > 1) x") +
		w.int("SELECT count(*)::int FROM (SELECT 1 FROM public.test_outcome GROUP BY job_id HAVING count(*) > 1) x") +
		w.int("SELECT count(*)::int FROM (SELECT 1 FROM public.webhook_delivery_jobs WHERE status = 'Completed' GROUP BY saga_id HAVING count(*) > 1) x")
	dead := w.int("SELECT (SELECT count(*) FROM public.dead_letters)::int + (SELECT count(*) FROM public.job_dead_letter)::int")
	failed := w.int("SELECT count(*)::int FROM public.job_history WHERE job_kind = 'drill' AND status <> 'succeeded'")
	d.acknowledged.mu.Lock()
	defer d.acknowledged.mu.Unlock()
	var starts int
	for _, h := range d.hosts {
		starts += h.times
	}
	var lines []string
	for what, n := range traced {
		lines = append(lines, fmt.Sprintf("  %d x %s", n, what))
	}
	slices.Sort(lines)
	report := fmt.Sprintf("fire drill: %s with %d hosts (%d starts), seed %d\nfaults: %s\nleft out: %s\n"+
		"producers had %d jobs and %d events acknowledged; %d jobs were asked for again with their key, of %d events the answer did not come; slowest answer %s\n"+
		"lost: %d jobs, %d events; with two outcomes: %d; dead letters: %d, of these after three lost leases: %d; all was worked on %s after the last fault\n"+
		"done twice, each across a fault that cut off its record:\n%s",
		lasted.Round(time.Second), len(d.hosts), starts, seed, d.log.counts(), strings.Join(d.log.skipped, "; "),
		len(d.acknowledged.jobs), len(d.acknowledged.events), d.acknowledged.again, d.acknowledged.doubt, d.acknowledged.slowestAnswer.Round(time.Millisecond),
		len(lostJobs), len(lostEvents), twice, dead, len(givenUp), settled.Round(100*time.Millisecond), strings.Join(lines, "\n"))
	t.Log(report)
	if file := os.Getenv("QTOP_TEST_DRILL_REPORT"); file != "" {
		require.NoError(t, os.WriteFile(file, []byte(report+"\n"), 0o600))
	}
	slices.Sort(d.log.skipped)
	for _, what := range slices.Compact(d.log.skipped) { // so that the run of all tests names it
		t.Run("left out", func(t *testing.T) { t.Skip(what) })
	}
	require.Empty(t, lostJobs, "jobs are lost")
	require.Empty(t, lostEvents, "events are lost")
	require.Zero(t, twice, "something has two outcomes")
	require.LessOrEqual(t, len(givenUp), 1+len(d.acknowledged.jobs)/2000, "jobs whose lease was lost three times")
	require.Equal(t, len(givenUp), dead, "dead letters")
	require.Equal(t, len(givenUp), failed, "jobs that did not succeed")
	require.Zero(t, otherIDs, "a webhook was sent again under another id")
	require.Empty(t, untraced, "done twice, and no fault between explains it")
	require.NotEmpty(t, d.acknowledged.jobs)
	require.NotEmpty(t, d.acknowledged.events)
	if !d.short { // in the short form a fault may happen to lose no result
		require.NotEmpty(t, traced, "no result failed to be recorded: nothing was tested")
		require.NotEmpty(t, d.network.Dropped(), "no reply to a host was dropped at COMMIT")
		require.NotEmpty(t, d.producing.Dropped(), "no reply to a producer was dropped at COMMIT")
	}
}

const clock = "15:04:05.000"

// givenUp returns the jobs that became dead letters because their lease was lost three times, as a
// job does that kills its hosts. Faults that follow each other may do that to one job; it is not
// lost, because an operator sees it and can requeue it.
func (d *drill) givenUp(t *testing.T) ([]int, error) {
	rows, err := d.world.admin.Query(t.Context(), `SELECT idempotency_key::int FROM public.job_history
		WHERE job_kind = 'drill' AND status = 'dead_letter' AND failure_code = 'LEASE_LOST_LIMIT'`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

func without(all, some []int) []int {
	return slices.DeleteFunc(all, func(n int) bool { return slices.Contains(some, n) })
}
