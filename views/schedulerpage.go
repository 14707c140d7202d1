package views

import (
	"bytes"
	"encoding/json"

	"github.com/qtop/qtop/pgclient/queue"
)

// TickPage returns the page of one tick worker with the changes of its interval. history is
// nil until it has been read.
func TickPage(t queue.TickWorker, s *queue.Snapshot, history []queue.AuditEntry, e Env, w int) Page {
	p := newPage(e, w)
	th, r := e.Theme, tickRank(t)
	p.head(t.Name.String())
	p.pair("what it does", queue.Purpose(t.Name.String()))
	p.paint("state", tickState(t), e.tone(r))
	p.pair("why", tickWhy(t))
	p.pair("every", queue.Choose(t.IntervalSeconds == 0, "0: the worker does not run", Age(t.IntervalSeconds)))
	if f, ok := s.Flag(queue.TickInterval(t.Name.String())); ok && f.RevertsAt != nil {
		p.pair("reverts", "to "+f.RevertsTo.String()+" s at "+e.Stamp(*f.RevertsAt)+", "+e.In(*f.RevertsAt))
	}
	if t.ThresholdSeconds > 0 {
		p.pair("stale after", queue.Choose(t.ThresholdSeconds >= 1000000, "not watched: the stale threshold is 1000000 s or more", Age(t.ThresholdSeconds)+" without a run"))
	}
	p.pair("last run", dashed(e, t.LastRunAt, e.Stamp)+bySource(t))
	if t.LastAttemptAt != nil && (t.LastRunAt == nil || t.LastAttemptAt.After(*t.LastRunAt)) {
		p.paint("last attempt", e.Stamp(*t.LastAttemptAt)+", failed", th.Critical)
	}
	if t.NextDueAt != nil {
		p.pair("due", e.Stamp(*t.NextDueAt)+", "+e.due(t))
	}
	p.pair("last result", orDash(TickResult(t.LastResult), e))
	p.pair("last work", dashed(e, t.LastWorkAt, e.Stamp))
	p.pair("done", Count(t.DoneTotal))
	p.pair("mode", t.Mode.String()+": "+modeMeans(t.Mode.String()))
	if !t.CronJob.Empty() {
		p.pair("cron job", t.CronJob.String()+"  "+tickCron(t, e))
	}
	if e.Brief {
		return p.done(t.Name.String())
	}
	var out bytes.Buffer
	if t.LastRunAt != nil && json.Indent(&out, t.LastResult, "", "  ") == nil {
		p.head("Last result in full")
		for line := range bytes.Lines(out.Bytes()) {
			p.verbatim(queue.Clean(string(bytes.TrimRight(line, "\n"))).String())
		}
	}
	p.head("Changes of its interval, newest first")
	p.changes(history)
	return p.done(t.Name.String())
}

func bySource(t queue.TickWorker) string {
	return queue.Choose(t.LastSource.Empty(), "", ", requested by "+t.LastSource.String())
}

// tickWhy returns what keeps a worker from running; "" if nothing does.
func tickWhy(t queue.TickWorker) string {
	switch {
	case t.IntervalSeconds == 0:
		return queue.TickInterval(t.Name.String()) + " is 0: P resumes it"
	case t.State == "off":
		return t.FlagKey.String() + " is off: gf"
	case t.State == "failed":
		return "the last run failed; the next run is at its interval"
	case t.Mode.String() == "pg_cron" && !t.CronJob.Empty() && t.CronRunAs.Empty() && !t.Why.Empty():
		return t.Why.String() + ": qtop scheduler install"
	case t.Stale && t.Why.Empty():
		return "a live host runs it, but no run has succeeded"
	}
	return t.Why.String()
}

// ModePage returns the page of the scheduler mode with the pg_cron jobs. cron is nil until it has
// been read.
func ModePage(s *queue.Snapshot, cron *queue.Cron, e Env, w int) Page {
	p := newPage(e, w)
	p.head("Scheduler mode")
	if f, ok := s.Flag(queue.SchedulerMode); ok {
		p.paint("mode", f.Value.String(), e.tone(rank(flagState(f))))
		p.pair("", modeMeans(f.Value.String()))
		p.pair("changed", e.Stamp(f.UpdatedAt)+" by "+f.UpdatedBy.String())
		p.pair("reason", f.Reason.String())
		if f.RevertsAt != nil {
			p.pair("reverts", "to "+f.RevertsTo.String()+" at "+e.Stamp(*f.RevertsAt)+", "+e.In(*f.RevertsAt))
		}
	}
	if e.Brief {
		return p.done("scheduler mode")
	}
	if cron == nil {
		p.reading("pg_cron")
		return p.done("scheduler mode")
	}
	p.head("pg_cron")
	p.verbatim(cron.Lacks.String())
	for _, j := range cron.Jobs {
		p.blank()
		state := CronState(j)
		bad := state == "GONE" || state == "INACTIVE" || state == "FAILED"
		p.paint("job", j.Name.String()+"  "+state, queue.Choose(bad, e.Theme.Critical, e.Theme.Text))
		p.pair("ticks", j.Worker.String()+" at "+j.Schedule.String())
		if !j.RunAs.Empty() {
			p.pair("runs as", j.RunAs.String()+", installed "+dashed(e, j.InstalledAt, e.Stamp)+" by "+j.InstalledBy.String())
		}
		if j.LastStartAt != nil {
			p.pair("last run", e.Stamp(*j.LastStartAt)+" "+j.LastStatus.String()+" "+j.LastMessage.String())
		}
	}
	return p.done("scheduler mode")
}
