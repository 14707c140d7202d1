package views

// This file is the jobs of a lane and one job in full.

import (
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
)

// wholeIDs is the width from which on a table shows ids whole.
const wholeIDs = 120

// Jobs is the second table of pane 8, on a screen of w cells: the live jobs of one
// lane.
func Jobs(rows []queue.Job, w int) Source {
	id := shortLen
	if w >= wholeIDs {
		id = uuidLen
	}
	return Source{
		Columns: []table.Column{
			{Title: "job", Width: id},
			{Title: "state", Width: 13},
			{Title: "age", Width: 8, Right: true},
			{Title: "tries", Width: 5, Max: 7, Right: true},
			{Title: "prio", Width: 5, Right: true, Drop: 4},
			{Title: "due", Width: 11, Drop: 3},
			{Title: "held by, or last error", Width: 20, Want: 26, Max: 90},
			{Title: "until", Width: 9, Drop: 2},
			{Title: "key", Width: 12, Max: 30, Drop: 6},
		},
		Len:    len(rows),
		Export: func(i int) (string, []any) { return "jobs", []any{rows[i]} },
		ID:     func(i int) string { return rows[i].ID },
		Row:    func(i int, e Env) table.Row { return jobRow(rows[i], id == uuidLen, e) },
		Fields: queue.JobFields(),
		Sorts: []Sort{
			{Name: "due first", Column: 5},
			{Name: "state", Column: 1, Less: func(i, j int) bool { return rows[i].Status < rows[j].Status }},
			{Name: "tries, most first", Column: 3, Desc: true, Less: func(i, j int) bool { return rows[i].Attempts > rows[j].Attempts }},
			{Name: "priority, highest first", Column: 4, Desc: true, Less: func(i, j int) bool { return rows[i].Priority > rows[j].Priority }},
			{Name: "age, oldest first", Column: 2, Desc: true, Less: func(i, j int) bool { return rows[i].AgeSeconds > rows[j].AgeSeconds }},
		},
		Empty: []string{"No live job in this lane.", "They were finished or cancelled. esc goes back to the lanes; what died stands in 5."},
	}
}

// jobState is a status in the words of an operator.
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

// expired tells a lease that nobody renewed in time: its job is not worked on.
func expired(j queue.Job, e Env) bool {
	return j.LeaseUntil != nil && j.FinishedAt == nil && j.LeaseUntil.Before(e.Now)
}

// jobRank is how much a job asks to be looked at.
func jobRank(j queue.Job, e Env) int {
	switch {
	case j.Status == "dead_letter" || j.Status == "failed":
		return rankCritical
	case expired(j, e):
		return rankCritical
	case j.Status == "retry_waiting":
		return rankWarning
	}
	return rankQuiet
}

// jobSign is the sign of a job: at work, done, or by its rank.
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

func jobRow(j queue.Job, whole bool, e Env) table.Row {
	th := e.Theme
	r := jobRank(j, e)
	id := j.ID
	if !whole {
		id = ShortID(id)
	}
	held, look, until := j.LastError.String(), th.Dim, th.G.Dash
	if held == "" {
		held = j.Code.String()
	}
	if j.LeaseUntil != nil {
		held, look, until = j.LeaseOwner.String(), th.Text, e.Until(*j.LeaseUntil)+" left"
		if expired(j, e) {
			until = e.Ago(*j.LeaseUntil) + " ago"
		}
	}
	return table.Row{Sign: jobSign(j, e), Cells: []table.Cell{
		cell(id, th.Strong), cell(jobState(j, e), e.tone(r)), cell(Age(j.AgeSeconds), th.Text),
		cell(tries(j), th.Text), cell(strconv.FormatInt(j.Priority, 10), th.Dim), cell(e.Clock(j.ProcessAfter), th.Dim),
		cell(held, look), cell(until, e.tone(r)), cell(j.Key.String(), th.Dim),
	}}
}

func tries(j queue.Job) string {
	s := strconv.Itoa(j.Attempts)
	if j.MaxAttempts > 0 {
		s += "/" + strconv.Itoa(j.MaxAttempts)
	}
	return s
}

// JobPage draws one job; d is nil until it has been read.
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
	p.pair("attempts", strconv.Itoa(j.Attempts)+" of "+strconv.Itoa(j.MaxAttempts)+lostWords(d))
	p.pair("priority", strconv.FormatInt(j.Priority, 10))
	p.pair("executor", j.Executor.String())
	p.jobTimes(j)
	p.lease(j)
	if c, x := j.Code.String(), j.LastError.String(); c != "" || x != "" {
		p.head("Last error")
		p.paint("code", c, e.Theme.Warning)
		p.said(x)
	}
	if d == nil {
		p.head("Payload")
		p.para("reading"+e.Theme.G.Ellipsis, e.Theme.Dim)
		return p.done("job " + ShortID(j.ID))
	}
	p.origin(d)
	p.payload(d.Payload, d.PayloadWhyNot, d.PayloadSize, d.Revealed)
	return p.done("job " + ShortID(j.ID))
}

func lostWords(d *queue.JobDetail) string {
	if d == nil || d.LostLeases == 0 {
		return ""
	}
	return ", " + plural(int64(d.LostLeases), "lease was lost", "leases were lost")
}

// origin is who put it in and what it is about, as far as that was said.
func (p *pageBuilder) origin(d *queue.JobDetail) {
	n := len(p.lines)
	p.head("Where from")
	heads := len(p.lines)
	p.pair("enqueued by", d.Actor.String())
	p.pair("key", d.Key.String())
	p.pair("source", d.SourceRef.String())
	p.pair("target", d.TargetRef.String())
	p.pair("correlation", d.CorrelationID.String())
	p.pair("payload in", d.PayloadRef.String())
	if len(p.lines) == heads {
		p.lines = p.lines[:n]
	}
}

func (p *pageBuilder) jobTimes(j queue.Job) {
	e := p.e
	p.pair("enqueued", e.Stamp(j.EnqueuedAt)+", "+e.Ago(j.EnqueuedAt)+" ago")
	due := e.Stamp(j.ProcessAfter)
	if j.ProcessAfter.After(e.Now) {
		due += ", in " + e.Until(j.ProcessAfter)
	}
	p.pair("due", due)
	since := func(label string, at *time.Time) {
		if at != nil {
			p.pair(label, e.Stamp(*at)+", "+e.Ago(*at)+" ago")
		}
	}
	since("picked", j.PickedAt)
	since("finished", j.FinishedAt)
}

// lease is who has the job, as long as it is live.
func (p *pageBuilder) lease(j queue.Job) {
	if j.LeaseUntil == nil || j.FinishedAt != nil {
		return
	}
	e := p.e
	p.head("Lease")
	p.pair("owner", j.LeaseOwner.String())
	if expired(j, e) {
		p.paint("until", e.Stamp(*j.LeaseUntil)+", expired "+e.Ago(*j.LeaseUntil)+" ago: L takes it back", e.Theme.Critical)
	} else {
		p.pair("until", e.Stamp(*j.LeaseUntil)+", "+e.Until(*j.LeaseUntil)+" left")
	}
	p.pair("token", j.LeaseToken)
}
