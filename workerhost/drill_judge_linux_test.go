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

	"github.com/qtop/qtop/workerhost/soak/fault"
)

// judge compares the ledger with the database, fails the test if work was lost
// or done twice without a fault that explains it, and prints the report.
func (d *drill) judge(t *testing.T, seed uint64, lasted, settled time.Duration) {
	t.Helper()
	w := d.world
	lostJobs, lostEvents := d.lost(t)
	givenUp, err := d.givenUp()
	require.NoError(t, err)
	lostJobs = without(lostJobs, givenUp)
	v := d.twice(t)
	hopeless := d.withoutThreeFaults(t, givenUp)
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
	for what, n := range v.traced {
		lines = append(lines, fmt.Sprintf("  %d x %s", n, what))
	}
	slices.Sort(lines)
	report := fmt.Sprintf("fire drill: %s with %d hosts (%d starts), seed %d\nfaults: %s\nleft out: %s\n"+
		"producers had %d jobs and %d events acknowledged; %d jobs were asked for again with their key, of %d events the answer did not come; slowest answer %s\n"+
		"lost: %d jobs, %d events; with two outcomes: %d; dead letters: %d, of these after three lost leases: %d; all was worked on %s after the last fault\n"+
		"while the disk was full: the console read snapshot, session and lists %d times in at most %s, and the server ended %d times\n"+
		"done twice, each across a fault of its host that cut off its record:\n%s",
		lasted.Round(time.Second), len(d.hosts), starts, seed, d.log.counts(), strings.Join(d.log.skipped, "; "),
		len(d.acknowledged.jobs), len(d.acknowledged.events), d.acknowledged.again, d.acknowledged.doubt, d.acknowledged.slowestAnswer.Round(time.Millisecond),
		len(lostJobs), len(lostEvents), twice, dead, len(givenUp), settled.Round(100*time.Millisecond),
		d.fullDisk.read, d.fullDisk.slowest.Round(10*time.Millisecond), d.fullDisk.ended, strings.Join(lines, "\n"))
	t.Log(report)
	if file := os.Getenv("QTOP_TEST_DRILL_REPORT"); file != "" {
		require.NoError(t, os.WriteFile(file, []byte(report+"\n"), 0o600))
	}
	for _, what := range d.log.skipped { // so that the run of all tests names it
		t.Run("left out", func(t *testing.T) { t.Skip(what) })
	}
	require.Empty(t, lostJobs, "jobs are lost")
	require.Empty(t, lostEvents, "events are lost")
	require.Zero(t, twice, "something has two outcomes")
	require.Empty(t, hopeless, "dead letters after three lost leases that three faults of their hosts do not explain")
	require.Positive(t, w.int("SELECT count(*)::int FROM public.test_lease"), "no claim was recorded")
	require.Equal(t, len(givenUp), dead, "dead letters")
	require.Equal(t, len(givenUp), failed, "jobs that did not succeed")
	require.Zero(t, v.otherIDs, "a webhook was sent again under another id")
	require.Empty(t, v.untraced, "done twice, and no fault of the host explains it")
	require.Empty(t, v.uncounted, "done more often than the database recorded lost leases and failed attempts")
	require.NotEmpty(t, d.acknowledged.jobs)
	require.NotEmpty(t, d.acknowledged.events)
	if !d.short { // in the short form a fault may happen to lose no result
		require.NotEmpty(t, v.traced, "no result failed to be recorded: nothing was tested")
	}
	require.True(t, d.fullDisk.read+d.fullDisk.ended > 0 || d.server.disk == "", "no console read on a full disk")
}

const clock = "15:04:05.000"

// doneTwice is what handlers and the receiver saw more than once.
type doneTwice struct {
	traced    map[string]int // how often, by the fault that explains it
	untraced  []string       // no fault explains it
	uncounted []string       // the database has not recorded as many lost leases and failed attempts
	otherIDs  int            // webhooks that were sent again under another id
}

func (v *doneTwice) again(d *drill, what string, a fault.Attempt) bool {
	found := d.log.explain(a)
	if len(found) == 0 {
		return false
	}
	v.traced[what+" after "+found[0].Name]++
	return true
}

func (v *doneTwice) fail(what string, n int, a fault.Attempt) {
	v.untraced = append(v.untraced, fmt.Sprintf("%s %d, from %s to %s by %s, again at %s", what, n, a.Start.Format(clock), a.End.Format(clock), a.Host, a.Again.Format(clock)))
}

// twice compares what handlers and the receiver saw more than once with the faults, and with the
// lost leases and failed attempts that the database recorded.
func (d *drill) twice(t *testing.T) *doneTwice {
	t.Helper()
	v := &doneTwice{traced: map[string]int{}}
	lost := d.recorded(t, "SELECT idempotency_key::int, lost_leases::int - (status = 'dead_letter')::int, 0 FROM public.job_history WHERE job_kind = 'drill'")
	for n, all := range d.handled(t) {
		for i := 1; i < len(all); i++ {
			a := fault.Attempt{Host: all[i-1].host, Start: all[i-1].at, End: all[i-1].end, Again: all[i].at}
			if a.End.IsZero() {
				a.End = a.Start
			}
			if v.again(d, "job", a) {
				continue
			}
			if late, found := d.beganLate(t, n, all[i]); !found || !v.again(d, "late start of a job", late) {
				v.fail("job", n, a)
				t.Logf("job %d was claimed %v", n, d.claims(t, n))
			}
		}
		if len(all)-1 > lost[n].leases {
			v.uncounted = append(v.uncounted, fmt.Sprintf("job %d: %d starts, %d lost leases", n, len(all), lost[n].leases))
		}
	}
	lost = d.recorded(t, `SELECT (e.payload ->> 'n')::int, sum(j.lease_resets)::int, count(*) FILTER (WHERE j.status = 'Failed' AND j.error_code <> 'LEASE_LOST_LIMIT')::int
		FROM public.webhook_delivery_jobs j JOIN public.webhook_delivery_sagas s ON s.id = j.saga_id JOIN public.events e ON e.id = s.event_id GROUP BY e.id`)
	for n, all := range d.requests() {
		ids, failed := map[string]bool{all[0].id: true}, lost[n].failed
		for i := 1; i < len(all); i++ {
			ids[all[i].id] = true
			a := fault.Attempt{Host: all[i-1].host, Start: all[i-1].at, End: all[i-1].at, Again: all[i].at}
			switch {
			case v.again(d, "webhook", a):
			case failed > 0: // the host did not get the response in time, and recorded that
				failed--
				v.traced["webhook after a failed attempt"]++
			default:
				v.fail("webhook", n, a)
			}
		}
		if len(ids) > 1 {
			v.otherIDs++
		}
		if len(all)-1 > lost[n].leases+lost[n].failed {
			v.uncounted = append(v.uncounted, fmt.Sprintf("webhook %d: %d requests, %d lost leases, %d failed attempts", n, len(all), lost[n].leases, lost[n].failed))
		}
	}
	return v
}

// beganLate returns the time from a claim of a job to the start of its handler as an attempt, if another
// host claimed the job in that time: a host that is stopped after it looked at the lease starts the handler
// when it goes on.
func (d *drill) beganLate(t *testing.T, n int, start begun) (a fault.Attempt, found bool) {
	t.Helper()
	for _, c := range d.claims(t, n) {
		switch {
		case c.at.After(start.at):
			return a, found
		case c.host == start.host:
			a, found = fault.Attempt{Host: c.host, Start: c.at, End: c.at, Again: start.at}, false
		case a.Host != "":
			found = true
		}
	}
	return a, found
}

// recordedLost holds the lost leases and the failed attempts that the database recorded.
type recordedLost struct{ leases, failed int }

// recorded returns them by number; the statement returns number, leases and failed.
func (d *drill) recorded(t *testing.T, sql string) map[int]recordedLost {
	t.Helper()
	rows, err := d.admin.Query(t.Context(), sql)
	require.NoError(t, err)
	all := map[int]recordedLost{}
	var n int
	var l recordedLost
	_, err = pgx.ForEachRow(rows, []any{&n, &l.leases, &l.failed}, func() error {
		all[n] = l
		return nil
	})
	require.NoError(t, err)
	return all
}

// givenUp returns the jobs that became dead letters because their lease was lost three times, as a
// job does that kills its hosts. Faults that follow each other may do that to one job; it is not
// lost, because an operator sees it and can requeue it.
func (d *drill) givenUp() ([]int, error) {
	rows, err := d.admin.Query(d.t.Context(), `SELECT idempotency_key::int FROM public.job_history
		WHERE job_kind = 'drill' AND status = 'dead_letter' AND failure_code = 'LEASE_LOST_LIMIT'`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// withoutThreeFaults returns those of the jobs of which three leases were not lost by three faults of the
// hosts that had them.
func (d *drill) withoutThreeFaults(t *testing.T, jobs []int) (out []string) {
	t.Helper()
	for _, n := range jobs {
		all := d.claims(t, n)
		var causes [][]time.Time // for each lease, when the faults that explain its loss began
		for i, c := range all {
			a := fault.Attempt{Host: c.host, Start: c.at, End: c.at, Again: time.Now()}
			if i+1 < len(all) {
				a.Again = all[i+1].at
			}
			var began []time.Time
			for _, f := range d.log.explain(a) {
				began = append(began, f.From)
			}
			causes = append(causes, began)
		}
		if !different(causes, map[time.Time]bool{}, 3) {
			out = append(out, fmt.Sprintf("job %d, claimed %v", n, all))
		}
	}
	return out
}

// different reports whether need of the leases can each have another fault as their cause. The other
// leases were not lost: their jobs were handed back, as those are that must run alone.
func different(causes [][]time.Time, used map[time.Time]bool, need int) bool {
	if need == 0 || len(causes) < need {
		return need == 0
	}
	for _, began := range causes[0] {
		if used[began] {
			continue
		}
		used[began] = true
		if different(causes[1:], used, need-1) {
			return true
		}
		delete(used, began)
	}
	return different(causes[1:], used, need)
}

func without(all, some []int) []int {
	return slices.DeleteFunc(all, func(n int) bool { return slices.Contains(some, n) })
}
