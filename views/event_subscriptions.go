package views

// Pane gs: event subscriptions, the event types that only broadcast reaches, and
// how the recipients of a type are resolved.

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// BroadcastHeadLines is the number of lines above the tables of pane gs.
const BroadcastHeadLines = 3

// EventSubscriptions returns the tables of pane gs: event subscriptions, and below them the
// unrouted types, whose events only broadcast reaches.
func EventSubscriptions(rows []queue.EventSubscription, b *queue.Broadcast) Source {
	var unrouted []queue.UnroutedType
	if b != nil {
		unrouted = b.Unrouted
	}
	return Source{
		Fields: queue.EventSubscriptionFields(),
		Sorts: []Sort{
			{Name: "domain", Column: "event_domain", Less: func(i, j int) bool { return eventSubscriptionOrder(rows[i]) < eventSubscriptionOrder(rows[j]) }},
			{Name: "recipient", Column: "recipient_ref", Less: func(i, j int) bool { return rows[i].Recipient.String() < rows[j].Recipient.String() }},
			{Name: "step", Column: "step", Less: func(i, j int) bool { return rows[i].Step() < rows[j].Step() }},
			{Name: "muted first", Column: "state", Desc: true, Less: func(i, j int) bool { return rows[i].Mute && !rows[j].Mute }},
		},
		Empty: []string{"There is no event subscription: every event goes to broadcast.", "N adds one."},
	}.with(eventSubscriptionList(rows), List[queue.UnroutedType]{
		Name: "unrouted", Rows: unrouted, ID: queue.UnroutedType.ID, First: "event_domain event_type event_stream broadcast_events_24h events_24h share",
		Look: func(_ queue.UnroutedType, e Env) (table.Cell, theme.Style) {
			return cell(e.Theme.G.Quiet, e.Theme.Dim), e.Theme.Text
		},
		Columns: []Column[queue.UnroutedType]{
			{Name: "event_type", Title: "REACHES NOBODY", Head: "TYPE", Width: 22, Want: 26, Max: 40, Look: strong},
			{Name: "event_domain", Title: "domain", Width: 9, Max: 18},
			{Name: "event_stream", Title: "stream", Width: 8, Max: 16, Drop: 2, Look: dim},
			{Name: "broadcast_events_24h", Title: "broadcast 24 h", Head: "BROADCAST 24H", Width: 14, Right: true},
			{Name: "events_24h", Title: "of", Head: "EVENTS 24H", Width: 10, Right: true, Drop: 1, Look: dim},
			{Name: "share", Head: "PERCENT", Width: 7, Right: true, Text: func(u queue.UnroutedType, _ Env) string { return percent(u.Broadcast, u.Events) }, Plain: func(u queue.UnroutedType) string { return PlainPercent(u.Broadcast, u.Events) }},
		},
	}.lines())
}

func eventSubscriptionList(rows []queue.EventSubscription) lines {
	return List[queue.EventSubscription]{
		Name: "subscriptions", Rows: rows, ID: func(s queue.EventSubscription) string { return strconv.FormatInt(s.ID, 10) },
		Title: func(s queue.EventSubscription) string {
			return s.Recipient.String() + " reads " + orEvery(s.Domain) + "/" + orEvery(s.Type)
		}, Word: queue.EventSubscription.Field,
		First: "subscription_id state recipient_ref event_domain event_type event_stream step scope_subject_table scope_filter",
		Look: func(s queue.EventSubscription, e Env) (table.Cell, theme.Style) {
			if s.Mute {
				return cell(e.Theme.G.Lost, e.Theme.Dim), e.Theme.Warning
			}
			return cell(e.Theme.G.Live, e.Theme.Accent), e.Theme.Text
		},
		Columns: []Column[queue.EventSubscription]{
			{Name: "recipient_ref", Title: "recipient", Width: 22, Want: 26, Max: 40, Tone: func(s queue.EventSubscription, e Env) theme.Style { return e.strongUnless(s.Mute) }},
			{Name: "event_domain", Title: "domain", Width: 9, Max: 18, Say: everything, Plain: func(s queue.EventSubscription) string { return plainEvery(s.Domain) }},
			{Name: "event_type", Title: "type", Width: 16, Want: 24, Max: 40, Say: everything, Plain: func(s queue.EventSubscription) string { return plainEvery(s.Type) }},
			{Name: "event_stream", Title: "stream", Width: 8, Max: 16, Say: everything, Plain: func(s queue.EventSubscription) string { return plainEvery(s.Stream) }},
			{Name: "state", Width: 6, Max: 8, Look: ofRow, Text: func(s queue.EventSubscription, _ Env) string { return muteState(s) }, Plain: muteState},
			{Name: "step", Width: 4, Right: true, Drop: 2, Look: dim, Text: func(s queue.EventSubscription, _ Env) string { return strconv.Itoa(s.Step()) }, Plain: func(s queue.EventSubscription) string { return strconv.Itoa(s.Step()) }},
			{Name: "scope", Width: 12, Max: 60, Drop: 1, Look: dim, Text: func(s queue.EventSubscription, _ Env) string { return scopeWords(s) }},
			{Name: "subscription_id", Title: "#", Head: "SUBSCRIPTION", Width: 4, Max: 7, Right: true, Drop: 3, Look: dim, Say: digits},
			{Name: "scope_subject_table", Head: "SUBJECT TABLE"},
			{Name: "scope_filter", Head: "PAYLOAD"},
		},
	}.lines()
}

func muteState(s queue.EventSubscription) string {
	return queue.Choose(s.Mute, "muted", "active")
}

// PlainPercent returns n as a percentage of of, without the sign %.
func PlainPercent(n, of int64) string {
	if of == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(n)/float64(of), 'f', 2, 64)
}

// eventSubscriptionOrder returns the key by which event subscriptions are
// sorted: those for all domains first, then domain by domain.
func eventSubscriptionOrder(s queue.EventSubscription) string {
	return strings.Join([]string{s.Domain.String(), s.Type.String(), s.Stream.String(), s.Recipient.String(), fmt.Sprintf("%19d", s.ID)}, "\x00")
}

// scopeWords returns the conditions that limit an event subscription to a part
// of the events of its types.
func scopeWords(s queue.EventSubscription) string {
	var words []string
	if !s.SubjectTable.Empty() {
		words = append(words, "about "+s.SubjectTable.String())
	}
	if f := s.Filter.String(); f != "{}" && f != "" {
		words = append(words, "with "+f)
	}
	return strings.Join(words, ", ")
}

// percent returns n as a percentage of of, with so many digits that a value
// above 0 is never shown as 0.
func percent(n, of int64) string {
	if of <= 0 {
		return "0 %"
	}
	share := 100 * float64(n) / float64(of)
	switch {
	case n > 0 && share < 0.01:
		return "<0.01 %"
	case share == float64(int64(share)):
		return strconv.FormatInt(int64(share), 10) + " %"
	}
	return strconv.FormatFloat(share, 'f', 2, 64) + " %"
}

// BroadcastHead returns the head of pane gs: the share of events of the last 24 hours that only
// broadcast reaches, with its limit, over time and per domain.
func BroadcastHead(b *queue.Broadcast, e Env, w int) []string {
	out := make([]string, BroadcastHeadLines)
	th := e.Theme
	if b != nil && len(b.Shares) == 0 { // the shares could not be read; the table shows the reason
		return out
	}
	if b == nil {
		out[0] = th.Cut(" "+th.Title.Paint("BROADCAST ")+th.Dim.Paint("reading"+th.G.Ellipsis), w)
		return out
	}
	all := b.Shares[0]
	r := rankOf(all.Over)
	sign := e.sign(r)
	share := e.dotted(percent(all.Broadcast, all.Events)+" of "+Plural(all.Events, "event", "events")+" in 24 h",
		queue.Choose(all.Over, "OVER", "not over")+" the limit of "+strconv.FormatInt(b.Line, 10)+" %")
	if all.Events == 0 {
		share = "no event in 24 h"
	}
	line := " " + sign.Style.Paint(sign.Text) + " " + th.Title.Paint("BROADCAST") + " " + e.tone(r).Paint(theme.Safe(share))
	trend := make([]int64, len(b.Trend))
	known := false
	for i, v := range b.Trend {
		if v != nil {
			trend[i], known = int64(*v*100), true
		}
	}
	if room := w - theme.Width(line) - 12; known && room >= len(trend) {
		line += "  " + th.Accent.Paint(Spark(th, trend, len(trend))) + th.Dim.Paint(" 24 h")
	}
	out[0] = th.Cut(line, w)
	if !b.On {
		out[1] = th.Cut("   "+th.Warning.Paint("OFF: queue.subscription_resolution.enabled is off, every event goes to broadcast"), w)
		return out
	}
	var words []string
	for _, s := range b.Shares[1:] {
		if s.Broadcast == 0 {
			break
		}
		words = append(words, s.Domain.String()+" "+percent(s.Broadcast, s.Events)+queue.Choose(s.Over, " over", ""))
	}
	if len(words) == 0 && all.Events > 0 {
		words = []string{"every event reaches a subscriber"}
	}
	out[1] = th.Cut("   "+th.Dim.Paint(theme.Safe(e.dotted(words...))), w)
	return out
}

// EventSubscriptionPage returns the page of one event subscription with its changes. history is
// nil until it has been read.
func EventSubscriptionPage(s queue.EventSubscription, history []queue.AuditEntry, e Env, w int) Page {
	title := "event subscription " + strconv.FormatInt(s.ID, 10)
	p := newPage(e, w)
	p.head(title + ", " + s.Recipient.String())
	p.paint("state", queue.Choose(s.Mute, "muted: ignored by the resolution", "active"), e.warn(s.Mute))
	p.pair("domain", orEvery(s.Domain))
	p.pair("type", orEvery(s.Type))
	p.pair("stream", orEvery(s.Stream))
	p.pair("scope", scopeWords(s))
	p.pair("step", strconv.Itoa(s.Step())+": "+stepWords(s.Step()))
	if e.Brief {
		return p.done(title)
	}
	p.head("Changes, newest first")
	p.list(history != nil, len(history), "Not changed yet.")
	for _, h := range history {
		p.pair(e.Clock(h.At), h.Actor.String()+": "+strings.ReplaceAll(h.Action.String(), "event_subscription_", "")+" "+h.Outcome.String()+reasonTail(h.Reason.String()))
	}
	return p.done(title)
}

// stepWords describes one step of the resolution, in which the recipients of
// an event are found: what an event subscription must name to be used at that
// step (DP6 §3.2).
func stepWords(step int) string {
	return [...]string{"", "type and stream are named", "the stream is named, every type", "the type is named, every stream", "every type and stream", "broadcast"}[min(max(step, 0), 5)]
}

// outcomeWords says why an event subscription was used or not.
func outcomeWords(r queue.ResolvedSubscription) string {
	switch r.Outcome {
	case "taken":
		return "reached"
	case "better":
		return "reached at an earlier step"
	case "muted":
		return "muted"
	case "subject_table":
		return "only about " + r.SubjectTable.String()
	case "filter":
		return "only with " + r.Filter.String()
	case "off":
		return "resolution is off"
	}
	return r.Outcome
}

// ResolutionPage returns the page that shows, step by step, which recipients an event of a type
// reaches. r is nil until it has been read.
func ResolutionPage(name string, r *queue.Resolution, e Env, w int) Page {
	th := e.Theme
	p := newPage(e, w)
	if r == nil {
		p.reading(name)
		return p.done(name)
	}
	p.head(r.Type.String())
	p.pair("domain", r.Domain.String())
	if !r.Registered {
		p.paint("type", "not registered: no such event can be written", th.Warning)
	}
	p.pair("stream", r.Stream.String())
	p.pair("subject table", r.SubjectTable.String())
	if s := r.Payload.String(); s != "{}" {
		p.pair("payload", s)
	}
	p.pair("in 24 h", Plural(r.Events, "event", "events")+", "+Count(r.Broadcast)+" of them to broadcast ("+percent(r.Broadcast, r.Events)+")")
	if !r.On {
		p.paint("resolution", "off: every event goes to broadcast (queue.subscription_resolution.enabled)", th.Warning)
	}
	for step := 1; step <= 4; step++ {
		p.head("Step " + strconv.Itoa(step) + ": " + stepWords(step))
		n := 0
		for _, x := range r.Subscriptions {
			if x.StepNo != step {
				continue
			}
			n++
			sign := queue.Choose(x.Outcome == "taken", cell(th.G.Good, th.Text), cell(th.G.Dash, th.Dim))
			p.paint(sign.Text+" #"+strconv.FormatInt(x.ID, 10), x.Recipient.String()+": "+outcomeWords(x), sign.Style)
		}
		if n == 0 {
			p.para("no subscription", th.Dim)
		}
	}
	p.head("Step 5: " + stepWords(5))
	var to []string
	for _, t := range r.Recipients {
		to = append(to, t.String())
	}
	if reached := strings.Join(to, ", "); reached == "broadcast" {
		p.paint(th.G.Warning+" reaches", "broadcast", th.Warning)
		p.para("Every recipient may read it. A consumer makes a job of it and counts as no recipient.", th.Dim)
	} else {
		p.para("not needed", th.Dim)
		p.head("Reaches")
		p.para(reached, th.Strong)
	}
	return p.done(name)
}
