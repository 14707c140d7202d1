package views

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

// Health returns the table of pane 2, the rows of v_queue_health in the snapshot, stale ones first.
// Where these lack dead letters, a note counts them.
func Health(s *queue.Snapshot) Source {
	rows := s.OrEmpty().Health
	urgency := func(i int) int { return rank(rows[i].StatusHint.String()) }
	age := func(i int) int64 {
		return queue.Choose(beats(rows[i]), beatAge(rows[i].AgeSeconds), orZero(rows[i].AgeSeconds))
	}
	return Source{
		Sorts: []Sort{
			{Name: "stale first", Column: "status_hint", Desc: true, Less: func(i, j int) bool {
				if a, b := urgency(i), urgency(j); a != b {
					return a > b
				} else if a > rankQuiet && age(i) != age(j) {
					return age(i) > age(j)
				}
				// Fresh rows are sorted by name: sorted by age, each heartbeat would reorder them.
				return rows[i].Subject.String() < rows[j].Subject.String()
			}},
			{Name: "last seen, oldest first", Column: "age_seconds", Desc: true, Less: func(i, j int) bool { return age(i) > age(j) }},
			{Name: "subject", Column: "subject", Less: func(i, j int) bool { return rows[i].Subject.String() < rows[j].Subject.String() }},
			{Name: "source", Column: "source", Less: func(i, j int) bool { return rows[i].Source.String() < rows[j].Source.String() }},
		},
		Empty: []string{"Nothing reports its health yet.", "A source appears after its first run; S in Worker host (gw) starts the loops of this process."},
		Note:  cmp.Or(missing(s, "health"), lackingDead(s.OrEmpty())),
	}.with(List[queue.HealthRow]{
		Name: "health", Rows: rows, ID: func(r queue.HealthRow) string {
			return r.Source.String() + "\x00" + r.Subject.String() + "\x00" + r.Domain.String()
		},
		First:  "status_hint source subject domain age_seconds last_seen_at events_seen attempts_written dead_lettered held_by",
		Filter: "source subject domain status=status_hint age=age_seconds events=events_seen attempts=attempts_written dead=dead_lettered",
		Look:   byRank(func(r queue.HealthRow) int { return rank(r.StatusHint.String()) }),
		Columns: []Column[queue.HealthRow]{
			{Name: "subject", Width: 22, Want: 28, Max: 44, Look: strong},
			{Name: "source", Width: 14, Want: 20, Max: 26, Drop: 1, Look: dim, Say: func(_ Env, v any) string { return HealthSource(fmt.Sprint(v)) }},
			{Name: "domain", Width: 8, Max: 16, Drop: 4, Look: dim},
			{Name: "status_hint", Title: "status", Head: "HINT", Width: 8, Max: 12, Look: ofRow},
			{Name: "age_seconds", Title: "last seen", Head: "AGE", Width: 9, Right: true, Text: lastSeen, Plain: func(r queue.HealthRow) string {
				return queue.Choose(beats(r), sinceBeat(r.AgeSeconds, PlainAge), queue.Choose(r.AgeSeconds == nil, "-", PlainAge(orZero(r.AgeSeconds))))
			}},
			{Name: "events_seen", Title: "events", Width: 9, Max: 12, Right: true, Drop: 3},
			{Name: "attempts_written", Title: "attempts", Width: 9, Max: 12, Right: true, Drop: 5},
			{Name: "dead_lettered", Title: "dead", Width: 7, Max: 9, Right: true, Drop: 2},
			{Name: "last_seen_at", Title: "last seen at", Head: "LAST SEEN", Width: 12, Drop: 6, Look: dim},
			{Name: "held_by", Width: 30, Want: 44, Max: 80, Drop: 7, Text: func(r queue.HealthRow, _ Env) string { return holder(s.Holder(r)) }, Plain: func(r queue.HealthRow) string { return PlainHolder(s.Holder(r)) }},
		},
	}.lines())
}

// lackingDead says how many dead letters are in no row of Health, because the snapshot leaves out groups;
// "" = all are.
func lackingDead(s *queue.Snapshot) string {
	if s.DeadMore.Groups == 0 {
		return ""
	}
	n := s.DeadMore.Open
	for _, g := range s.DeadGroups {
		n += g.Open
	}
	for _, h := range s.Health {
		if strings.HasPrefix(h.Source.String(), "dead_letter_") {
			n -= orZero(h.DeadLettered)
		}
	}
	return queue.Choose(n > 0, "the rows of "+Plural(n, "dead letter", "dead letters")+"; pane 5 lists all", "")
}

// beats reports whether a row is about something that runs at intervals. If it has no age, it never
// ran; a backlog without an age has nothing that is due.
func beats(r queue.HealthRow) bool {
	return r.Source.String() == "heartbeat" || r.Source.String() == "cursor"
}

// lastSeen returns the age of a row of health.
func lastSeen(r queue.HealthRow, e Env) string {
	if beats(r) {
		return sinceBeat(r.AgeSeconds, Age)
	}
	return dashed(e, r.AgeSeconds, Age)
}

// HealthSource returns what a row of health is about (its column source), in
// the words of the glossary.
func HealthSource(source string) string {
	switch source {
	case "cursor_held":
		return "held cursor"
	case "executor_subscription":
		return "job subscriptions"
	case "notification_pending":
		return "staged notifications"
	case "subscription_broadcast":
		return "broadcast share"
	case "backlog_job_queue":
		return "job backlog"
	case "backlog_webhook":
		return "webhook backlog"
	}
	if of, ok := strings.CutPrefix(source, "dead_letter_"); ok {
		return of + " dead letters"
	}
	return strings.ReplaceAll(source, "_", " ")
}

// HealthPage returns the page of one row of pane 2.
func HealthPage(s *queue.Snapshot, r queue.HealthRow, e Env, w int) Page {
	p := newPage(e, w)
	p.head(r.Subject.String())
	p.pair("source", HealthSource(r.Source.String()))
	p.pair("domain", r.Domain.String())
	p.paint("status", r.StatusHint.String(), e.tone(rank(r.StatusHint.String())))
	if r.LastSeenAt != nil {
		p.pair("last seen", e.Stamp(*r.LastSeenAt))
	}
	p.pair("age", lastSeen(r, e))
	p.pair("held by", holder(s.Holder(r)))
	p.pair("events seen", dashed(e, r.EventsSeen, Count))
	p.pair("attempts", dashed(e, r.AttemptsWritten, Count))
	p.pair("dead-lettered", dashed(e, r.DeadLettered, Count))
	return p.done(r.Subject.String())
}
