package views

// The pages of a queue lane and of a lease, and the state of the job table: dead rows that an old
// PostgreSQL snapshot keeps make every claim slower.

import (
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// LanePage returns the page of one queue lane with the job subscriptions that cover it.
func LanePage(l queue.Lane, s *queue.Snapshot, e Env, w int) Page {
	p := newPage(e, w)
	clears, r := e.clearing(l.ClearsInSeconds, l.Stuck(), orZero(l.AgeSeconds), l.OutPerSecond, true)
	switch {
	case l.ClearsInSeconds != nil:
		clears = "; clears in " + clears
	case r > rankQuiet:
		clears = "; at this rate it never clears"
	default:
		clears = ""
	}
	p.head(l.Kind.String() + " in " + l.Domain.String())
	if l.OldestAt != nil {
		p.paint("oldest wait", dashed(e, l.AgeSeconds, Age)+", since "+e.Stamp(*l.OldestAt), e.tone(r))
	}
	p.paint("why", l.Why.String(), e.tone(r))
	p.pair("waiting", Count(l.QueuedDue())+" queued, "+Count(l.Scheduled)+" due later, "+Count(l.RetryWaiting)+" waiting for their next attempt")
	p.pair("in progress", Count(l.Leased)+" leased, "+Count(l.InProgress)+" in progress")
	p.pair("pace", Rate(l.InPerSecond)+" in, "+Rate(l.OutPerSecond)+" out a second"+clears)
	p.pair("last hour", hourWords(l, e))
	if l.NewestAt != nil {
		p.pair("newest", e.Stamp(*l.NewestAt))
	}
	p.head("Subscribed executors")
	n := 0
	for _, x := range s.JobSubscriptions {
		if k, d := x.JobKind.String(), x.Domain.String(); (k == "" || k == l.Kind.String()) && (d == "" || d == l.Domain.String()) &&
			(l.Executor.Empty() || x.ExecutorKind == l.Executor) { // a lane of jobs for one executor kind lists only executors of that kind
			p.pair(x.ExecutorID.String(), subscriptionWords(x))
			n++
		}
	}
	if n == 0 {
		p.para("None: no job subscription covers this lane. E on an executor (4) adds one.", e.Theme.Warning)
	}
	return p.done(l.Kind.String())
}

// hourWords returns how the jobs of a queue lane ended in the last hour.
func hourWords(l queue.Lane, e Env) string {
	var parts []string
	for _, x := range []struct {
		n    int64
		word string
	}{{l.Succeeded, "ok"}, {l.Failed, "failed"}, {l.Dead, "dead"}, {l.Cancelled, "cancelled"}} {
		if x.n > 0 {
			parts = append(parts, Count(x.n)+" "+x.word)
		}
	}
	switch {
	case len(parts) == 0:
		return "no job finished"
	case l.Succeeded > 0:
		parts[0] = e.Theme.G.Good + " " + parts[0]
	}
	return strings.Join(parts, ", ")
}

// laneWords describes one queue lane in at most two lines, for a screen
// without room for its page.
func laneWords(l queue.Lane, e Env) []string {
	why := l.Why.String()
	if why == "" && l.Waiting() > 0 {
		why = "nothing known blocks it"
	}
	return []string{
		why, l.Domain.String(), Rate(l.InPerSecond) + " in/s " + Rate(l.OutPerSecond) + " out/s",
		queue.Choose(l.RetryWaiting > 0, Count(l.RetryWaiting)+" retry", ""), queue.Choose(l.Scheduled > 0, Count(l.Scheduled)+" due later", ""),
		"last hour: " + hourWords(l, e),
	}
}

// LeasePage returns the page of one lease.
func LeasePage(l queue.JobLease, e Env, w int) Page {
	p := newPage(e, w)
	p.head("Lease of " + l.Owner.String())
	p.paint("problem", leaseWords(l, e), e.tone(leaseRank(l)))
	p.pair("jobs", Plural(l.Live, "job", "jobs")+", the first of kind "+l.Kind.String()+" in "+l.Domain.String())
	p.pair("claimed", e.since(&l.ClaimedAt))
	p.pair("until", e.Stamp(l.Until))
	p.pair("lease", l.ID)
	if l.Expired {
		p.pair("what happens", "The tick worker lease_reaper releases its jobs within a minute if a live host runs it; L releases them now. The results of a worker that still has them are then refused.")
	} else {
		p.pair("what happens", "Its worker may still be working. Only an expired lease can be released.")
	}
	return p.done("lease " + ShortID(l.ID))
}

// Limits above which the job table needs attention. An old snapshot of
// PostgreSQL keeps every row that died after it; dead rows make claims slower.
const (
	oldSnapshot  = 5 * 60 // seconds
	manyDeadRows = 10_000
)

// jobTableRank returns how urgent the state of the job table is.
func jobTableRank(t queue.JobTable) int {
	old := t.OldestSnapshotSeconds != nil && *t.OldestSnapshotSeconds >= oldSnapshot
	bloated := t.DeadRows >= manyDeadRows && t.DeadRows >= t.LiveRows
	switch {
	case old && bloated:
		return rankCritical
	case old || bloated:
		return rankWarning
	default:
		return rankQuiet
	}
}

// JobTable returns the state of the job table, in as many lines as the text needs.
func JobTable(s *queue.Snapshot, e Env, w int) []string {
	if s == nil || missing(s, "job_table") != "" {
		return nil
	}
	th, t := e.Theme, s.JobTable
	r := jobTableRank(t)
	sign := e.sign(r)
	indent := 3 + len("JOB TABLE") + 2
	var out []string
	parts := e.dottedLines(w-indent-1, rowWords(t), vacuumWords(t, e), snapshotWords(t), leaseCount(t))
	for _, line := range hung(" "+sign.Style.Paint(sign.Text)+" "+th.Title.Paint("JOB TABLE")+"  ", parts, e.tone(r)) {
		out = append(out, th.Cut(line, w))
	}
	return out
}

// dottedLines joins parts with dots and wraps them to w cells. A line may end with a dot, but
// does not begin with one.
func (e Env) dottedLines(w int, parts ...string) []string {
	w = max(w, 8)
	var out []string
	line := ""
	for _, word := range strings.Fields(theme.Safe(e.dotted(parts...))) {
		switch {
		case line == "":
			line = word
		case word == e.Theme.G.Dot || theme.Width(line)+1+theme.Width(word) <= w-2: // a dot still fits after the word
			line += " " + word
		default:
			out, line = append(out, line), word
		}
	}
	return append(out, wrap(line, w)...)
}

func rowWords(t queue.JobTable) string {
	s := Plural(t.LiveRows, "live row", "live rows") + ", " + Count(t.DeadRows) + " dead"
	if all := t.LiveRows + t.DeadRows; t.DeadRows > 0 && all > 0 {
		bloated := t.DeadRows >= manyDeadRows && t.DeadRows >= t.LiveRows
		s += " (" + strconv.FormatInt(t.DeadRows*100/all, 10) + " %: " + queue.Choose(bloated, "each claim reads past them", "harmless") + ")"
	}
	return s
}

func vacuumWords(t queue.JobTable, e Env) string {
	if t.LastVacuum == nil {
		return "never vacuumed"
	}
	return "vacuumed " + e.Ago(*t.LastVacuum) + " ago"
}

// snapshotWords returns the age of the oldest PostgreSQL snapshot. A null age means that there is
// none, or that this login may not see it.
func snapshotWords(t queue.JobTable) string {
	if t.OldestSnapshotSeconds == nil {
		return "no old snapshot"
	}
	s := "oldest snapshot " + Age(*t.OldestSnapshotSeconds)
	if t.OldestSnapshotPid != nil {
		s += ", pid " + strconv.FormatInt(*t.OldestSnapshotPid, 10)
	}
	s = strings.TrimSpace(s + " " + t.OldestSnapshotProgram.String())
	if *t.OldestSnapshotSeconds >= oldSnapshot {
		s += ": it keeps dead rows"
	}
	return s
}

func leaseCount(t queue.JobTable) string {
	return Plural(t.Leases, "lease", "leases") + queue.Choose(t.LeasesExpired > 0, ", "+Count(t.LeasesExpired)+" expired", "")
}
