package views

import (
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// wideLanes is the width in cells from which on "never" is written as "never at this rate".
const wideLanes = 150

// LaneID identifies a queue lane for the cursor, the selection and queue.ListJobs.
func LaneID(domain, kind string) string { return domain + "/" + kind }

// Lanes returns the tables of pane 8 on a screen of w cells: queue lanes with their waiting
// jobs and the reason, and below them stuck leases.
func Lanes(s *queue.Snapshot, w int) Source {
	lanes, leases := s.OrEmpty().Queues, s.OrEmpty().JobLeases
	cut, atLeast := s.OrEmpty().MoreLeases()
	clears, why := 9, 28
	if w >= wideLanes {
		clears, why = len("never at this rate"), 40
	}
	domains := map[queue.Text]int{} // in how many domains each kind has a queue lane
	for _, l := range lanes {
		domains[l.Kind]++
	}
	return Source{
		Sorts: []Sort{
			{Name: "stuck first", Column: "oldest", Desc: true, Less: func(i, j int) bool {
				a, b := lanes[i], lanes[j]
				if x, y := laneRank(a), laneRank(b); x != y {
					return x > y
				} else if x > rankQuiet && orZero(a.AgeSeconds) != orZero(b.AgeSeconds) {
					return orZero(a.AgeSeconds) > orZero(b.AgeSeconds)
				}
				// Healthy queue lanes are sorted by name: sorted by age, each claim would reorder
				// them.
				return laneName(a) < laneName(b)
			}},
			{Name: "oldest wait first", Column: "oldest", Desc: true, Less: func(i, j int) bool { return orZero(lanes[i].AgeSeconds) > orZero(lanes[j].AgeSeconds) }},
			{Name: "queued, most first", Column: "queued", Desc: true, Less: func(i, j int) bool { return lanes[i].QueuedDue() > lanes[j].QueuedDue() }},
			{Name: "dead in the last hour, most first", Column: "dead_1h", Desc: true, Less: func(i, j int) bool { return lanes[i].Dead > lanes[j].Dead }},
			{Name: "job kind", Column: "job_kind", Less: func(i, j int) bool { return laneName(lanes[i]) < laneName(lanes[j]) }},
		},
		Empty: []string{
			"No job arrived in the last hour, and none is waiting.",
			"A producer enqueues a job: SELECT fn_job_enqueue('mail.send', 'iu', 'Agent');",
			"An executor claims it if it is registered (4, N) and has a subscription (4, E).",
			"The loop job_executor runs the handlers of this process (gw, S).",
		},
		Note:   missing(s, "queues", "job_leases", "job_table"),
		Second: Second{Selectable: true, AtLeast: queue.Choose(cut, int(atLeast), 0)},
	}.with(List[queue.Lane]{
		Name: "queues", Rows: lanes, ID: func(l queue.Lane) string { return LaneID(l.Domain.String(), l.Kind.String()) },
		Title:  func(l queue.Lane) string { return l.Kind.String() + " in " + l.Domain.String() },
		First:  "job_kind event_domain queued scheduled retry_waiting leased in_progress oldest in_per_s out_per_s clears_in_seconds succeeded_1h failed_1h dead_1h cancelled_1h why",
		Filter: "kind=job_kind domain=event_domain owner why age=age_seconds queued jobs",
		Word: func(l queue.Lane, word string) (any, bool) {
			if word == "queued" {
				return l.QueuedDue(), true
			}
			return l.Waiting() + l.Leased + l.InProgress, word == "jobs"
		},
		Look: laneLook,
		Columns: []Column[queue.Lane]{
			{Name: "job_kind", Head: "KIND", Width: 16, Want: 20, Max: 36, Cell: func(l queue.Lane, e Env) table.Cell { // a narrow screen has no column for the domain
				tail := queue.Choose(domains[l.Kind] > 1, " in "+l.Domain.String(), "")
				return table.Cell{Text: l.Kind.String() + tail, Style: e.Theme.Strong, Tail: tail}
			}},
			{Name: "event_domain", Title: "domain", Width: 8, Max: 18, Drop: 3, Look: dim},
			{Name: "oldest", Width: 8, Right: true, Look: ofRow, Text: func(l queue.Lane, e Env) string {
				return dashed(e, l.AgeSeconds, Age)
			}, Plain: PlainWaited},
			{Name: "queued", Width: 7, Max: 10, Right: true, Text: func(l queue.Lane, _ Env) string { return Count(l.QueuedDue()) }, Plain: func(l queue.Lane) string { return plain("", l.QueuedDue()) }},
			{Name: "scheduled", Title: "due later", Head: "SCHEDULED", Width: 9, Right: true, Drop: 8, Look: dim},
			{Name: "retry_waiting", Title: "retry", Head: "RETRYING", Width: 6, Max: 9, Right: true, Drop: 6},
			{Name: "at_work", Width: 7, Max: 9, Right: true, Drop: 1, Text: func(l queue.Lane, _ Env) string { return Count(l.Leased + l.InProgress) }},
			{Name: "in_per_s", Title: "in/s", Width: 5, Right: true, Drop: 4},
			{Name: "out_per_s", Title: "out/s", Width: 5, Right: true, Drop: 4},
			{Name: "clears_in_seconds", Title: "clears in", Width: clears, Cell: func(l queue.Lane, e Env) table.Cell {
				words, r := e.clearing(l.ClearsInSeconds, l.Stuck(), orZero(l.AgeSeconds), l.OutPerSecond, w >= wideLanes)
				return cell(words, e.tone(r))
			}, Plain: PlainClears},
			{Name: "succeeded_1h", Title: "ok 1h", Head: "DONE 1H", Width: 7, Max: 9, Right: true, Drop: 7, Look: dim},
			{Name: "failed_1h", Width: 9, Right: true, Drop: 7, Cell: func(l queue.Lane, e Env) table.Cell { return e.bad(l.Failed) }},
			{Name: "dead_1h", Width: 7, Right: true, Drop: 5, Cell: func(l queue.Lane, e Env) table.Cell { return e.bad(l.Dead) }},
			{Name: "cancelled_1h", Width: 12, Right: true, Drop: 9, Look: dim},
			{Name: "why", Width: 12, Want: why, Max: 70, Drop: 2, Look: ofRow},
			{Name: "leased"},
			{Name: "in_progress", Head: "RUNNING"},
		},
	}.lines(), List[queue.JobLease]{
		Name: "job-leases", Rows: leases, ID: func(l queue.JobLease) string { return l.ID },
		Title:  func(l queue.JobLease) string { return l.Kind.String() + " held by " + l.Owner.String() },
		Filter: "kind=job_kind domain=event_domain owner=lease_owner jobs=live",
		Word:   func(l queue.JobLease, word string) (any, bool) { return s.TakenAt.Sub(l.ClaimedAt), word == "age" },
		Look:   byRank(leaseRank),
		Columns: []Column[queue.JobLease]{
			{Name: "lease_owner", Title: "STUCK LEASES", Width: 16, Want: 20, Max: 40, Look: strong},
			{Name: "job_kind", Width: 10, Max: 30, Drop: 1},
			{Name: "live", Title: "jobs", Width: 5, Max: 9, Right: true},
			{Name: "what_is_wrong", Width: 22, Max: 34, Look: ofRow, Text: leaseWords},
			{Name: "lease_id", Title: "lease", Width: 8, Max: shortLen, Look: dim, Say: short},
			{Name: "event_domain", Title: "domain", Width: 8, Max: 18, Drop: 3, Look: dim},
			{Name: "claimed_at", Title: "claimed", Width: 11, Drop: 4, Look: dim},
		},
	}.lines())
}

func laneName(l queue.Lane) string { return l.Kind.String() + "\x00" + l.Domain.String() }

// laneRank returns how urgent a queue lane is. It depends only on the age of the oldest waiting
// job.
func laneRank(l queue.Lane) int {
	_, r := Env{}.clearing(l.ClearsInSeconds, l.Stuck(), orZero(l.AgeSeconds), l.OutPerSecond, false)
	return r
}

func leaseRank(l queue.JobLease) int { return queue.Choose(l.Expired, rankCritical, rankWarning) }

// leaseWords returns what is wrong with a lease.
func leaseWords(l queue.JobLease, e Env) string {
	return queue.Choose(l.Expired, "expired "+e.Ago(l.Until)+" ago", "not renewed, "+e.Left(l.Until))
}

// uuidLen is the length of a UUID, shortLen the length of a UUID that ShortID has shortened.
const uuidLen, shortLen = 36, 17

// ShortID shortens an id for display. It keeps the second half of a UUID: a UUID of version 7
// begins with its time, so UUIDs of jobs that were enqueued together differ only there.
func ShortID(id string) string {
	prefix := ""
	for _, p := range []string{"job:", "event:"} {
		if rest, ok := strings.CutPrefix(id, p); ok {
			prefix, id = p, rest
		}
	}
	if len(id) != uuidLen || strings.Count(id, "-") != 4 {
		return prefix + id
	}
	if id[14] == '7' {
		return prefix + id[uuidLen-shortLen:]
	}
	return prefix + id[:8]
}

// laneLook returns sign and style of a queue lane: those of its urgency or, if
// it is not urgent and jobs are in progress, the sign "live".
func laneLook(l queue.Lane, e Env) (table.Cell, theme.Style) {
	return e.atWork(laneRank(l), l.Leased+l.InProgress > 0)
}

// bad shows a number that should be 0, as a warning if it is not.
func (e Env) bad(n int64) table.Cell {
	return cell(Count(n), queue.Choose(n == 0, e.Theme.Dim, e.Theme.Warning))
}

// PlainWaited returns how long the oldest job of a queue lane has waited.
func PlainWaited(l queue.Lane) string {
	return queue.Choose(l.AgeSeconds == nil, "-", PlainAge(orZero(l.AgeSeconds)))
}

// PlainClears returns when a queue lane is empty at its current rates.
func PlainClears(l queue.Lane) string {
	switch {
	case l.ClearsInSeconds != nil:
		return PlainAge(*l.ClearsInSeconds)
	case l.Stuck():
		return "never"
	}
	return "-"
}
