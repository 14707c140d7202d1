package views

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// wholeIDs is the screen width from which on ids are shown in full.
const wholeIDs = 120

// Jobs returns the table of the live jobs of one queue lane, on a screen of w cells.
func Jobs(rows []queue.Job, w int) Source {
	id, shown := shortLen, short
	if w >= wholeIDs {
		id, shown = uuidLen, nil
	}
	return Source{
		Fields: queue.JobFields(),
		Sorts: []Sort{
			{Name: "due first", Column: "process_after"},
			{Name: "state", Column: "status", Less: func(i, j int) bool { return rows[i].Status < rows[j].Status }},
			{Name: "attempts, most first", Column: "attempts", Desc: true, Less: func(i, j int) bool { return rows[i].Attempts > rows[j].Attempts }},
			{Name: "priority, highest first", Column: "priority", Desc: true, Less: func(i, j int) bool { return rows[i].Priority > rows[j].Priority }},
			{Name: "age, oldest first", Column: "age_seconds", Desc: true, Less: func(i, j int) bool { return rows[i].AgeSeconds > rows[j].AgeSeconds }},
		},
		Empty: []string{"No live job in this lane.", "All were finished or cancelled. esc goes back to the lanes; dead letters are in pane 5."},
	}.with(List[queue.Job]{
		Name: "jobs", Rows: rows, ID: func(j queue.Job) string { return j.ID },
		Title: func(j queue.Job) string { return j.Kind.String() + " in " + j.Domain.String() }, First: "job_id job_kind event_domain status age_seconds priority executor attempts process_after lease_owner failure_code",
		Look: func(j queue.Job, e Env) (table.Cell, theme.Style) { return jobSign(j, e), e.tone(jobRank(j, e)) },
		Columns: []Column[queue.Job]{
			{Name: "job_id", Title: "job", Head: "ID", Width: id, Look: strong, Say: shown},
			{Name: "status", Title: "state", Head: "STATUS", Width: 13, Look: ofRow, Text: jobState},
			{Name: "age_seconds", Title: "age", Width: 8, Right: true,
				Text:  func(j queue.Job, e Env) string { return queue.Choose(j.DueLater(), e.Theme.G.Dash, Age(j.AgeSeconds)) },
				Plain: func(j queue.Job) string { return queue.Choose(j.DueLater(), "-", PlainAge(j.AgeSeconds)) }},
			{Name: "attempts", Title: "attempts", Width: 8, Max: 8, Right: true, Text: func(j queue.Job, _ Env) string { return attemptsText(j) }, Plain: func(j queue.Job) string { return fmt.Sprintf("%d/%d", j.Attempts, j.MaxAttempts) }},
			{Name: "priority", Title: "prio", Head: "PRIORITY", Width: 5, Right: true, Drop: 4, Look: dim, Say: digits},
			{Name: "process_after", Title: "due", Width: 11, Drop: 3, Look: dim},
			{Name: "held_by", Title: "held by, or last error", Width: 20, Want: 26, Max: 90, Cell: jobHolder},
			{Name: "lease_until", Title: "until", Width: 9, Drop: 2, Look: ofRow, Text: jobUntil},
			{Name: "idempotency_key", Title: "key", Width: 12, Max: 30, Drop: 6, Look: dim},
			{Name: "job_kind", Head: "KIND"},
			{Name: "event_domain", Head: "DOMAIN"},
			{Name: "executor"},
			{Name: "lease_owner", Head: "OWNER"},
			{Name: "failure_code", Head: "CODE"},
			{Name: "last_error"},
		},
	}.lines())
}

// jobHolder shows the owner of a job's lease; without a lease, the job's last error.
func jobHolder(j queue.Job, e Env) table.Cell {
	switch {
	case j.LeaseUntil != nil:
		return cell(j.LeaseOwner.String(), e.Theme.Text)
	case j.LastError.Empty():
		return cell(j.Code.String(), e.Theme.Dim)
	}
	return cell(j.LastError.String(), e.Theme.Dim)
}

// jobUntil returns how long the lease is still valid.
func jobUntil(j queue.Job, e Env) string {
	switch {
	case j.LeaseUntil == nil:
		return e.Theme.G.Dash
	case expired(j, e):
		return e.Ago(*j.LeaseUntil) + " ago"
	}
	return e.Left(*j.LeaseUntil)
}

// jobState returns a status in readable form.
func jobState(j queue.Job, e Env) string {
	switch {
	case expired(j, e):
		return "lease expired"
	case j.Status == "queued" && !j.Ready && j.ProcessAfter.After(e.Now):
		return "due later"
	case j.Status == "retry_waiting":
		return "retry"
	}
	return strings.ReplaceAll(j.Status, "_", " ")
}

// expired reports whether a job's lease has expired, so that nobody works on the job.
func expired(j queue.Job, e Env) bool {
	return j.LeaseUntil != nil && j.FinishedAt == nil && j.LeaseUntil.Before(e.Now)
}

// jobRank returns how urgent a job is.
func jobRank(j queue.Job, e Env) int {
	switch {
	case j.Status == "dead_letter", j.Status == "failed", expired(j, e):
		return rankCritical
	case j.Status == "retry_waiting":
		return rankWarning
	}
	return rankQuiet
}

// jobSign returns the sign of a job: in progress, succeeded, or the sign of its rank.
func jobSign(j queue.Job, e Env) table.Cell {
	r := jobRank(j, e)
	switch {
	case r > rankQuiet:
		return e.sign(r)
	case j.Status == "in_progress" || j.Status == "leased":
		return cell(e.Theme.G.Live, e.Theme.Accent)
	case j.Status == "succeeded":
		return cell(e.Theme.G.Good, e.Theme.Accent)
	}
	return e.sign(r)
}

func attemptsText(j queue.Job) string {
	return strconv.Itoa(j.Attempts) + queue.Choose(j.MaxAttempts > 0, "/"+strconv.Itoa(j.MaxAttempts), "")
}

// JobPage returns the page of one job. d is nil until it has been read.
func JobPage(j queue.Job, d *queue.JobDetail, e Env, w int) Page {
	p := newPage(e, w)
	if d != nil {
		j = d.Job
	}
	p.head("Job " + j.ID)
	p.pair("kind", j.Kind.String()+" in "+j.Domain.String())
	state := strings.TrimSpace(jobSign(j, e).Text + " " + jobState(j, e))
	if d != nil && d.FromStatus != "" {
		state += ", was " + strings.ReplaceAll(d.FromStatus, "_", " ")
	}
	p.paint("state", state, e.tone(jobRank(j, e)))
	if d != nil {
		p.pair("dead letter", d.DeadLetterID)
	}
	p.pair("attempts", strconv.Itoa(j.Attempts)+" of "+strconv.Itoa(j.MaxAttempts)+lostLeases(d))
	p.pair("priority", strconv.FormatInt(j.Priority, 10))
	p.pair("executor kind", j.Executor.String())
	p.jobTimes(j)
	p.lease(j)
	if c, x := j.Code.String(), j.LastError.String(); c != "" || x != "" {
		p.head("Last error")
		p.paint("code", c, e.Theme.Warning)
		p.verbatim(x)
		if j.Attempts > 1 {
			p.para(EarlierAttempts, p.e.Theme.Dim)
		}
	}
	if d == nil {
		p.reading("Payload")
		return p.done("job " + ShortID(j.ID))
	}
	p.origin(d)
	p.payload(d.Payload, d.PayloadWhyNot, d.PayloadSize, d.Revealed)
	return p.done("job " + ShortID(j.ID))
}

// EarlierAttempts says which facts about the attempts of a job are stored.
const EarlierAttempts = "Of earlier attempts only the number and the last error are kept."

func lostLeases(d *queue.JobDetail) string {
	if d == nil || d.LostLeases == 0 {
		return ""
	}
	return ", " + Plural(int64(d.LostLeases), "lease was lost", "leases were lost")
}

// NoProducer stands for the name of the producer of a job that was enqueued without one.
const NoProducer = "a producer that gave no name"

// origin shows who enqueued the job, and the references in its payload.
func (p *pageBuilder) origin(d *queue.JobDetail) {
	p.head("Origin")
	p.pair("enqueued by", cmp.Or(d.Actor.String(), NoProducer))
	p.pair("key", d.Key.String())
	p.pair("source", d.SourceRef.String())
	p.pair("target", d.TargetRef.String())
	p.pair("correlation", d.CorrelationID.String())
	p.pair("payload in", d.PayloadRef.String())
}

func (p *pageBuilder) jobTimes(j queue.Job) {
	e := p.e
	p.pair("enqueued", e.since(&j.EnqueuedAt))
	p.pair(queue.Choose(j.Again(), "next attempt", "due"), e.Stamp(j.ProcessAfter)+queue.Choose(j.ProcessAfter.After(e.Now), ", "+e.In(j.ProcessAfter), ""))
	p.pair("claimed", e.since(j.PickedAt))
	p.pair("finished", e.since(j.FinishedAt))
}

// lease shows the owner of a live job's lease.
func (p *pageBuilder) lease(j queue.Job) {
	if j.LeaseUntil == nil || j.FinishedAt != nil {
		return
	}
	e := p.e
	p.head("Lease")
	p.pair("owner", j.LeaseOwner.String())
	if expired(j, e) {
		p.paint("until", e.Stamp(*j.LeaseUntil)+", expired "+e.Ago(*j.LeaseUntil)+" ago; L releases it", e.Theme.Critical)
	} else {
		p.pair("until", e.Stamp(*j.LeaseUntil)+", "+e.Left(*j.LeaseUntil))
	}
	p.pair("lease", j.LeaseID)
}
