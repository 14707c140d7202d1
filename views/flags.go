package views

import (
	"cmp"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

// Flags returns the table of pane gf: flags that are off, temporary, overdue or invalid first.
func Flags(s *queue.Snapshot) Source {
	rows := s.OrEmpty().Flags
	return Source{
		Sorts: []Sort{
			{Name: "state, worst first", Column: "state", Desc: true, Less: func(i, j int) bool {
				if c := cmp.Compare(rank(flagState(rows[i])), rank(flagState(rows[j]))); c != 0 {
					return c > 0
				}
				return rows[i].Key.String() < rows[j].Key.String()
			}},
			{Name: "flag", Column: "key", Less: func(i, j int) bool { return rows[i].Key.String() < rows[j].Key.String() }},
			{Name: "changed, newest first", Column: "updated_at", Desc: true, Less: func(i, j int) bool { return rows[i].UpdatedAt.After(rows[j].UpdatedAt) }},
		},
		Empty: []string{"This database has no flags.", "qtop migrate up installs them."},
		Note:  missing(s, "flags"),
	}.with(List[queue.Flag]{
		Name: "flags", Rows: rows, ID: func(f queue.Flag) string { return f.Key.String() }, First: "key value state updated_by updated_at reason reverts_at",
		Filter: "key value kind state by=updated_by reason",
		Word:   func(f queue.Flag, word string) (any, bool) { return flagState(f), word == "state" },
		Look:   byRank(func(f queue.Flag) int { return rank(flagState(f)) }),
		Columns: []Column[queue.Flag]{
			{Name: "key", Title: "flag", Width: 34, Want: 50, Max: 54, Look: strong},
			{Name: "value", Width: 7, Max: 14, Look: ofRow},
			{Name: "state", Width: 8, Max: 10, Look: ofRow, Text: func(f queue.Flag, _ Env) string { return flagWord(flagState(f)) }, Plain: func(f queue.Flag) string { return flagWord(flagState(f)) }},
			{Name: "reverts_at", Title: "reverts", Head: "REVERTS AT", Width: 13, Max: 22, Drop: 1, Text: func(f queue.Flag, e Env) string {
				if f.RevertsAt == nil {
					return e.Theme.G.Dash
				}
				return f.RevertsTo.String() + queue.Choose(f.Overdue, " since ", " at ") + e.Clock(*f.RevertsAt)
			}},
			{Name: "updated_at", Title: "changed", Head: "AT", Width: 11, Drop: 4, Look: dim},
			{Name: "updated_by", Title: "by", Width: 9, Max: 16, Drop: 3, Look: dim},
			{Name: "reason", Width: 14, Max: 40, Drop: 2},
			{Name: "description", Title: "what it does", Width: 24, Max: 60, Drop: 5, Look: dim},
			{Name: "reverts_to", Head: "REVERTS TO"},
		},
	}.lines())
}

// flagState returns the state of a flag in one word.
func flagState(f queue.Flag) string {
	switch {
	case f.Invalid:
		return "invalid"
	case f.Overdue:
		return "overdue"
	case f.Off:
		return "off"
	case f.RevertsAt != nil:
		return "for now"
	default:
		return ""
	}
}

// flagWord returns the state as the screen shows it.
func flagWord(state string) string {
	return queue.Choose(rank(state) > rankQuiet, strings.ToUpper(state), state)
}

// FlagPage returns the page of one flag with its changes. history is nil until it has been read.
func FlagPage(f queue.Flag, history []queue.AuditEntry, e Env, w int) Page {
	p := newPage(e, w)
	p.head(f.Key.String())
	p.paint("value", f.Value.String(), e.tone(rank(flagState(f))))
	p.paint("state", flagWord(flagState(f)), e.tone(rank(flagState(f))))
	if f.Invalid {
		p.pair("", "This value is invalid; the safe value applies.")
	}
	p.pair("kind", f.Kind)
	p.pair("what it does", f.Description.String())
	p.pair("changed", e.Stamp(f.UpdatedAt)+" by "+f.UpdatedBy.String())
	p.pair("reason", f.Reason.String())
	switch {
	case f.RevertsAt == nil:
	case f.Overdue: // it did not go back, and does not do so now
		p.paint("overdue", "should be "+f.RevertsTo.String()+" since "+e.since(f.RevertsAt), e.tone(rank(flagState(f))))
	default:
		p.pair("reverts", "to "+f.RevertsTo.String()+" at "+e.Stamp(*f.RevertsAt)+", "+e.In(*f.RevertsAt))
	}
	if e.Brief {
		return p.done(f.Key.String())
	}
	p.head("Changes, newest first")
	p.changes(history)
	return p.done(f.Key.String())
}

// changes lists audit rows with the values before and after.
func (p *pageBuilder) changes(history []queue.AuditEntry) {
	p.list(history != nil, len(history), "Not changed yet.")
	for _, h := range history {
		what := shortJSON(h.Before) + " " + p.e.Theme.G.Right + " " + shortJSON(h.After)
		p.pair(p.e.Clock(h.At), h.Actor.String()+": "+what+reasonTail(h.Reason.String()))
	}
}

func reasonTail(reason string) string {
	return queue.Choose(reason == "", "", " ("+reason+")")
}
