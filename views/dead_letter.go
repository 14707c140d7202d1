package views

import (
	"fmt"
	"strconv"

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
	if d.WebhookID != "" {
		p.pair("webhook-id", d.WebhookID)
		p.pair("headers", HeadersNote)
	}
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

// HeadersNote says where the headers of a webhook request are described, because they are not stored.
const HeadersNote = "not stored; docs/webhooks.md describes them"

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

// attempts shows the attempts of a webhook, oldest first.
func (p *pageBuilder) attempts(d *queue.DeadLetterDetail) {
	if len(d.Attempts) == 0 && d.Source != "webhook" {
		return // this source stores the last error only, no attempts
	}
	p.head(fmt.Sprintf("Attempts (%d)", len(d.Attempts)))
	if len(d.Attempts) == 0 {
		p.para("None: it failed before the first attempt.", p.e.Theme.Dim)
	}
	p.timeline(d.Attempts, false)
}

// timeline adds attempts, each with its response below; ids adds the webhook-id of each.
func (p *pageBuilder) timeline(as []queue.Attempt, ids bool) {
	code := 15
	for _, a := range as {
		code = max(code, theme.Width(attemptCode(a)))
	}
	for _, a := range as {
		p.attempt(a, code+1)
		if ids {
			p.pair("", queue.Choose(a.WebhookID == "", "", "webhook-id "+a.WebhookID))
		}
	}
}

// attemptStatus returns the answer of the receiver; without one, the status.
func attemptStatus(a queue.Attempt) string {
	if a.HTTPStatus != nil {
		return "HTTP " + strconv.Itoa(*a.HTTPStatus)
	}
	return a.Status
}

func attemptCode(a queue.Attempt) string {
	return theme.Safe(queue.Choose(a.Code.String() == attemptStatus(a), "", a.Code.String()))
}

// attempt adds one attempt, with its response below. code is the width of its code.
func (p *pageBuilder) attempt(a queue.Attempt, code int) {
	e, th := p.e, p.e.Theme
	when, took := th.G.Dash, ""
	if a.StartedAt != nil {
		when = e.Second(*a.StartedAt)
		if a.FinishedAt != nil {
			took = "took " + Span(a.FinishedAt.Sub(*a.StartedAt))
		}
	}
	sign := queue.Choose(a.Status == "Completed", cell(th.G.Good, th.Accent), e.sign(rankCritical))
	p.row("   "+sign.Style.Paint(sign.Text)+" ", theme.Blank(8), part{strconv.Itoa(a.No), 3, th.Text}, part{when, 16, th.Text},
		part{theme.Safe(attemptStatus(a)), 10, th.Text}, part{attemptCode(a), code, th.Text}, part{took, 12, th.Dim}, part{theme.Safe(a.Worker.String()), 0, th.Dim})
	if a.Resets > 0 {
		p.pair("", Plural(int64(a.Resets), "lease was lost", "leases were lost")+" in this attempt")
	}
	if x := a.Excerpt.String(); x != "" {
		for _, line := range wrap(theme.Safe(x), p.w-9) {
			p.add("       " + th.Dim.Paint(line))
		}
	}
}
