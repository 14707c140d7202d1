package views

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// EndpointPage returns the page of one endpoint: its state, results and retries, and what keeps
// deliveries from being sent. d is nil until it has been read.
func EndpointPage(r queue.Endpoint, d *queue.EndpointDetail, e Env, w int) Page {
	th := e.Theme
	p := newPage(e, w)
	p.head(r.Endpoint.String() + ", subscription " + strconv.FormatInt(r.ID, 10))
	p.pair("url", r.URL.String())
	p.pair("event type", r.EventType.String())
	p.endpointState(r)
	p.pair("waiting", fmt.Sprintf("%s: %s new, %s in progress, %s waiting for their next attempt", Count(r.Waiting), Count(r.Pending), Count(r.InProgress), Count(r.PendingRetry)))
	if r.OldestAt != nil {
		p.paint("oldest wait", dashed(e, r.AgeSeconds, Age)+", since "+e.Stamp(*r.OldestAt), e.tone(endpointRank(r)))
	} else if r.NextAt != nil {
		p.pair("next", e.In(*r.NextAt)+", at "+e.Stamp(*r.NextAt))
	}
	p.pair("in flight", inFlightWords(r))
	p.pair("ended", Count(r.Completed)+" delivered, "+Count(r.DeadLettered)+" dead-lettered, "+Count(r.DeadOpen)+" of them open (5)")
	p.results(r)
	if r.Unsigned {
		p.paint("signature", "none: this subscription has no secret", th.Warning)
	}
	p.pair("limits", limitWords(r))
	if e.Brief {
		return p.done("endpoint " + r.Endpoint.String())
	}
	if d == nil {
		p.reading("Why it waits")
		return p.done("endpoint " + r.Endpoint.String())
	}
	if d.Why != nil {
		p.head(queue.Choose(r.Waiting > 0, "Why it waits", "What could block it"))
		p.causes(*d.Why)
	}
	p.retries(d.Retries)
	p.head(fmt.Sprintf("Latest attempts (%d)", len(d.Attempts)))
	if len(d.Attempts) == 0 {
		p.para("No attempt has finished yet.", th.Dim)
	}
	p.timeline(d.Attempts, true)
	return p.done("endpoint " + r.Endpoint.String())
}

// endpointState shows whether deliveries are sent, and why not.
func (p *pageBuilder) endpointState(r queue.Endpoint) {
	e := p.e
	switch r.Gate {
	case "open":
		p.pair("state", "sending"+slowStartWords(r))
	case "inactive", "unverified":
		verb := queue.Choose(r.Gate == "inactive", "enable", "verify")
		p.paint("state", fmt.Sprintf("%s: no events are routed to this subscription; qtop webhook %s %d --reason R", r.Gate, verb, r.ID), e.Theme.Warning)
	default:
		s := "suspended (" + r.Reason.String() + ")"
		over := r.Until != nil && !e.Now.Before(*r.Until) // the block ended after the snapshot was taken
		switch {
		case r.Gate == "half_open", over && r.Reason.String() == "circuit":
			s = "circuit half open: one probe at a time is sent, and its result decides"
		case r.Reason.String() == "circuit":
			s = "circuit open: nothing is sent, no attempt is spent"
		}
		if r.Since != nil {
			s += ", by " + r.SuspendedBy.String() + " since " + e.Stamp(*r.Since) + quoted(r.Note)
		}
		switch {
		case r.Gate == "half_open", over:
		case r.Until != nil:
			s += ", for another " + e.Until(*r.Until)
		default:
			s += ", until it is resumed"
		}
		do := "; D resumes the endpoint"
		if r.Reason.String() == "circuit" {
			do = "; D closes the circuit now; to send nothing: :endpoint suspend " + strconv.FormatInt(r.ID, 10)
		}
		p.paint("state", s+do, e.Theme.Warning)
	}
}

// quoted returns the reason that somebody gave, behind the text that it explains; "" = none.
func quoted(reason queue.Text) string {
	return queue.Choose(reason.Empty(), "", ", \""+reason.String()+"\"")
}

func slowStartWords(r queue.Endpoint) string {
	if r.SlowStart == nil {
		return ""
	}
	return ": slow start, " + slowRate(r) + " over all hosts; doubles every 10 s while it delivers"
}

func inFlightWords(r queue.Endpoint) string {
	return Count(r.Leased) + queue.Choose(r.Expired > 0, ", "+Count(r.Expired)+" with an expired lease; L releases them", "")
}

func (p *pageBuilder) results(r queue.Endpoint) {
	e := p.e
	if r.Recent == 0 {
		p.pair("results", "nothing has been sent yet")
		return
	}
	s := fmt.Sprintf("%d %% of the last %s succeeded, p50 %s, p95 %s", okPercent(r), Plural(r.Recent, "attempt", "attempts"), dashed(e, r.P50MS, Millis), dashed(e, r.P95MS, Millis))
	p.paint("results", s, e.warn(okShare(r) < 0.9))
	if r.LastSuccessAt != nil {
		p.pair("last success", e.since(r.LastSuccessAt))
	} else {
		p.paint("last success", "never", e.Theme.Warning)
	}
	if r.LastFailureAt != nil {
		in := queue.Choose(r.FailuresInRow > 0, ", "+strconv.Itoa(r.FailuresInRow)+" in a row", "")
		p.pair("last failure", e.since(r.LastFailureAt)+": "+r.LastFailure.String()+in)
	}
}

func limitWords(r queue.Endpoint) string {
	rate, most := "no rate limit", "webhook.max_attempts"
	if r.RateLimit != nil {
		rate = rateText(*r.RateLimit) + " over all hosts"
	}
	if r.MaxAttempts != nil {
		most = strconv.Itoa(*r.MaxAttempts)
	}
	return rate + ", attempts: " + most
}

// retries shows how many waiting delivery jobs become due in each of the next
// time spans.
func (p *pageBuilder) retries(slots []queue.RetrySlot) {
	var top int64
	for _, s := range slots {
		top = max(top, s.N)
	}
	if top == 0 {
		return
	}
	th := p.e.Theme
	p.head("Next attempts of waiting jobs")
	room := max(p.w-40, 8)
	for _, s := range slots {
		n := p.e.counted(s.N, s.Bound)
		bar := strings.Repeat(th.G.Spark[len(th.G.Spark)-1], int(s.N*int64(min(room, 40))/top))
		p.add("   " + th.Dim.Paint(th.Left(slotWords(s), 16)) + th.Text.Paint(th.Right(n, 9)) + " " + th.Accent.Paint(bar))
	}
}

// causes shows everything that can block a queue, in the order in which it is
// checked: what blocks now, with its remedy, and what does not.
func (p *pageBuilder) causes(y queue.Why) {
	th := p.e.Theme
	for _, l := range y.Links {
		sign, look := th.G.Good, th.Dim
		switch l.State {
		case "blocks":
			sign, look = th.G.Critical, th.Critical
		case "slows":
			sign, look = th.G.Warning, th.Warning
		}
		for _, line := range hung("   "+look.Paint(sign)+" "+th.Dim.Paint(th.Left(theme.Safe(l.Link), 14)), wrap(theme.Safe(l.Text.String()), p.w-20), look) {
			p.add(line)
		}
		under := func(text string) {
			for _, part := range wrap(theme.Safe(text), p.w-20) {
				p.add(theme.Blank(19) + th.Dim.Paint(part))
			}
		}
		if d := l.Detail.String(); d != "" {
			under(d)
		}
		if l.State != "clear" {
			keys := p.e.linkKeys(y, l)
			if cure := queue.Choose(keys != "", keys+", or ", "") + l.Do.String(); cure != "" {
				under("cure: " + cure)
			}
		}
	}
}

// WhyPage returns the page of the command :why, which says why a queue waits. y is nil until it has
// been read.
func WhyPage(name string, y *queue.Why, e Env, w int) Page {
	p := newPage(e, w)
	if y == nil {
		p.reading("Why " + name + " waits")
		return p.done("why " + name)
	}
	p.head("Why " + y.Queue.String() + " waits")
	n := queue.Choose(y.Waiting == 0, "nothing", e.counted(y.Waiting, y.WaitingBound))
	if y.Waiting > 0 && y.OldestAt != nil {
		n += ", the oldest for " + Age(y.AgeSeconds) + ", since " + e.Stamp(*y.OldestAt)
	} else if y.Waiting > 0 {
		n += ", none is due yet"
	}
	p.pair("waiting", n)
	switch {
	case !y.Why.Empty():
		p.paint("because", y.Why.String(), e.Theme.Warning)
	case y.Waiting > 0:
		p.pair("because", "nothing known blocks this queue: its jobs are in progress, arrive faster than they finish, or an executor that lives does not claim them")
	}
	p.head("What can block it, in order")
	p.causes(*y)
	return p.done("why " + y.Queue.String())
}
