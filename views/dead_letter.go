package views

import (
	"fmt"
	"strconv"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// DeadLetterPage returns the page of one dead letter: its failure, attempts, lineage, outcome
// and payload. d is nil until it has been read.
func DeadLetterPage(l queue.DeadLetter, d *queue.DeadLetterDetail, e Env, w int) Page {
	p := newPage(e, w)
	if d != nil {
		l = d.DeadLetter
	}
	p.head("Dead letter " + l.ID)
	p.pair("code", l.Code.String())
	p.paint("state", l.State, e.Theme.Strong)
	p.pair("failed", e.Stamp(l.FailedAt)+", "+Age(l.AgeSeconds)+" ago")
	switch l.Source {
	case "job":
		p.pair("job kind", l.Endpoint.String())
	case "webhook":
		p.pair("endpoint", l.Endpoint.String())
	}
	p.pair("event", eventWords(l))
	p.pair("domain", l.Domain.String())
	p.pair("source", l.Source)
	if l.SubscriptionID != 0 {
		p.pair("subscription", strconv.FormatInt(l.SubscriptionID, 10))
	}
	if l.ErasedAt != nil {
		p.paint("erased", e.Stamp(*l.ErasedAt)+" by "+l.ErasedBy.String()+": the payload is gone, so it cannot be sent again", e.Theme.Warning)
	}
	if l.Generation > 0 {
		p.pair("requeued", Plural(int64(l.Generation), "time before", "times before"))
	}
	if d == nil {
		p.reading("Attempts")
		return p.done("dead letter " + l.ID)
	}
	p.pair("url", d.CallbackURL.String())
	if d.Unsigned {
		p.paint("signature", "none: this subscription has no secret", e.Theme.Warning)
	}
	p.pair("event id", d.RoutedID)
	p.pair("route worker", d.Worker.String())
	p.pair("job", d.JobID)
	if d.Tries > 0 {
		p.pair("attempts", strconv.Itoa(d.Tries))
	}
	p.pair("executor kind", d.Executor.String())
	p.pair("first failed", e.since(d.FirstFailedAt))
	p.outcome(d)
	if x := d.LastError.String(); x != "" {
		p.head("Last error")
		p.verbatim(x)
	}
	p.attempts(d)
	p.lineage(d.Lineage, d.LineageLeft)
	p.payload(d.Payload, d.PayloadWhyNot, d.PayloadSize, d.Revealed)
	return p.done("dead letter " + l.ID)
}

func eventWords(l queue.DeadLetter) string {
	return l.EventType.String() + queue.Choose(l.EventID != 0, " #"+strconv.FormatInt(l.EventID, 10), "")
}

// outcome shows who closed the dead letter (by a requeue or by resolving it),
// and how.
func (p *pageBuilder) outcome(d *queue.DeadLetterDetail) {
	if d.ReplayedJobID != "" {
		who := ""
		if d.RequeuedAt != nil {
			who = p.e.Stamp(*d.RequeuedAt) + " by " + d.RequeuedBy.String() + " "
		}
		p.pair("replayed", who+"as job "+d.ReplayedJobID)
	} else if d.RequeuedAt != nil && d.Source == "event" {
		p.pair("routed again", p.e.Stamp(*d.RequeuedAt)+" by "+d.RequeuedBy.String())
	} else if d.RequeuedAt != nil {
		p.pair("requeued", fmt.Sprintf("%s by %s as saga %d", p.e.Stamp(*d.RequeuedAt), d.RequeuedBy.String(), d.NewSagaID))
	}
	if d.ResolvedAt != nil {
		p.pair("closed", p.e.Stamp(*d.ResolvedAt)+" by "+d.ResolvedBy.String()+": "+d.Resolution.String()+reasonTail(d.ResolvedNote.String()))
	}
}

// attempts shows the attempts as a timeline: the first one with its time, the others relative to
// that time.
func (p *pageBuilder) attempts(d *queue.DeadLetterDetail) {
	th, as := p.e.Theme, d.Attempts
	if len(as) == 0 && d.Source != "webhook" {
		return // this source stores the last error only, no attempts
	}
	p.head(fmt.Sprintf("Attempts (%d)", len(as)))
	if len(as) == 0 {
		p.para("None: it failed before the first attempt.", th.Dim)
	}
	var first *time.Time
	for _, a := range as {
		p.attempt(a, first)
		if first == nil {
			first = a.StartedAt
		}
	}
}

// attempt adds one attempt, with its response below. first is the time of the first attempt,
// to which the others are relative.
func (p *pageBuilder) attempt(a queue.Attempt, first *time.Time) {
	e, th := p.e, p.e.Theme
	when, took := th.G.Dash, ""
	if a.StartedAt != nil {
		when = e.Clock(*a.StartedAt)
		if first != nil {
			when += " +" + Span(a.StartedAt.Sub(*first))
		}
		if a.FinishedAt != nil {
			took = "took " + Span(a.FinishedAt.Sub(*a.StartedAt))
		}
	}
	status := a.Status
	if a.HTTPStatus != nil {
		status = "HTTP " + strconv.Itoa(*a.HTTPStatus)
	}
	sign := queue.Choose(a.Status == "Completed", cell(th.G.Good, th.Accent), e.sign(rankCritical))
	code := queue.Choose(a.Code.String() == status, "", a.Code.String())
	p.add("   " + sign.Style.Paint(sign.Text) + " " + th.Left(strconv.Itoa(a.No), 3) + th.Left(when, 20) +
		th.Left(theme.Safe(status), 10) + th.Left(theme.Safe(code), 16) + th.Dim.Paint(th.Left(took, 12)+theme.Safe(a.Worker.String())))
	if a.Resets > 0 {
		p.pair("", Plural(int64(a.Resets), "lease was lost", "leases were lost")+" in this attempt")
	}
	if x := a.Excerpt.String(); x != "" {
		for _, part := range wrap(theme.Safe(x), p.w-9) {
			p.add("       " + th.Dim.Paint(part))
		}
	}
}
