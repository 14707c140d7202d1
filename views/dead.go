package views

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// GroupNames returns a name for each group of dead letters: its endpoint or
// job kind. If several groups with the same error code would have the same
// name, the domain or the subscription is added, because a narrow screen has
// no column for these.
func GroupNames(groups []queue.DeadGroup) []string {
	type named struct{ source, code, endpoint string }
	of := func(g queue.DeadGroup) named { return named{g.Source, g.Code.String(), g.Endpoint.String()} }
	times := map[named]int{}
	for _, g := range groups {
		times[of(g)]++
	}
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.Endpoint.String()
		switch {
		case times[of(g)] == 1:
		case g.SubscriptionID != 0:
			names[i] += " #" + strconv.FormatInt(g.SubscriptionID, 10)
		default:
			names[i] += " in " + g.Domain.String()
		}
	}
	return names
}

// DeadGroups returns the first table of pane 5: open dead letters by cause.
func DeadGroups(s *queue.Snapshot) Source {
	rows := s.OrEmpty().DeadGroups
	names := map[string]string{}
	for i, name := range GroupNames(rows) {
		names[GroupID(rows[i])] = name
	}
	return Source{
		Sorts: []Sort{
			{Name: "open, most first", Column: "open", Desc: true, Less: func(i, j int) bool { return rows[i].Open > rows[j].Open }},
			{Name: "last, newest first", Column: "last_at", Desc: true, Less: func(i, j int) bool { return rows[i].LastAt.After(rows[j].LastAt) }},
			{Name: "first, oldest first", Column: "first_at", Less: func(i, j int) bool { return rows[i].FirstAt.Before(rows[j].FirstAt) }},
			{Name: "code", Column: "code", Less: func(i, j int) bool { return rows[i].Code.String() < rows[j].Code.String() }},
			{Name: "endpoint", Column: "endpoint", Less: func(i, j int) bool { return rows[i].Endpoint.String() < rows[j].Endpoint.String() }},
		},
		Empty: []string{"No dead letter is open.", "Jobs, webhooks and events that fail for good appear here, grouped by cause."},
		Note:  cmp.Or(missing(s, "dead_groups"), MoreGroups(s.OrEmpty().DeadMore)), Stored: true,
	}.with(List[queue.DeadGroup]{
		Name: "dlq-groups", Rows: rows, ID: GroupID, Title: func(g queue.DeadGroup) string { return g.Code.String() + " at " + names[GroupID(g)] }, First: "code endpoint subscription_id open first_at last_at source domain",
		Filter: "code endpoint kind=source subscription=subscription_id domain source open age",
		Word: func(g queue.DeadGroup, word string) (any, bool) {
			switch {
			case word == "age" && !g.FirstAt.IsZero():
				return s.TakenAt.Sub(g.FirstAt), true
			case word == "kind" && g.Source == "job":
				return g.Endpoint.String(), true
			}
			return nil, false
		},
		Look: byRank(groupRank),
		Columns: []Column[queue.DeadGroup]{
			{Name: "code", Width: 12, Want: 18, Max: 24, Look: strong},
			{Name: "endpoint", Title: "endpoint / kind", Width: 19, Want: 28, Max: 48, Cell: func(g queue.DeadGroup, e Env) table.Cell {
				name := names[GroupID(g)]
				return table.Cell{Text: name, Style: e.Theme.Text, Tail: strings.TrimPrefix(name, g.Endpoint.String())}
			}},
			{Name: "open", Width: 7, Max: 9, Right: true, Look: ofRow},
			{Name: "first_at", Title: "first", Width: 8, Right: true, Drop: 2, Look: dim, Say: ago},
			{Name: "last_at", Title: "last", Width: 8, Right: true, Drop: 1, Say: ago},
			{Name: "new_1h", Title: "new 1h", Width: 6, Max: 8, Right: true, Drop: 4, Look: ofRow, Text: newInHour},
			{Name: "last_hour", Width: 12, Drop: 3, Look: ofRow, Text: func(g queue.DeadGroup, e Env) string { return Spark(e.Theme, g.Trend, 12) }},
			{Name: "domain", Width: 10, Max: 20, Drop: 5, Look: dim},
			{Name: "source", Width: 8, Drop: 6, Look: dim},
			{Name: "subscription_id", Title: "sub", Head: "SUBSCRIPTION", Width: 5, Max: 7, Right: true, Drop: 7, Look: dim, Say: orDashed,
				Plain: func(g queue.DeadGroup) string { return plainID(g.SubscriptionID) }},
		},
	}.lines())
}

// newInHour is how many dead letters of the group arose in the last hour, those that are no longer open included.
func newInHour(g queue.DeadGroup, e Env) string {
	if len(g.Trend) == 0 {
		return e.Theme.G.Dash
	}
	n := int64(0)
	for _, x := range g.Trend {
		n += x
	}
	return Count(n)
}

// MoreGroups says how many groups of dead letters a snapshot leaves out; "" = no groups are left
// out.
func MoreGroups(m queue.DeadMore) string {
	if m.Groups == 0 {
		return ""
	}
	return queue.Choose(m.GroupsBound, "at least ", "") + Count(m.Groups) + " more " + queue.Choose(m.Groups == 1, "group", "groups") + " with " +
		Plural(m.Open, "dead letter", "dead letters")
}

// DeadPane returns the table of DeadGroups with one more row, if the snapshot
// leaves groups out. That row has the number of dead letters in the groups
// left out, no times, and is not exported; a note says how many groups these
// are.
func DeadPane(s *queue.Snapshot) Source {
	more := MoreGroups(s.OrEmpty().DeadMore)
	if more == "" {
		return DeadGroups(s)
	}
	shown := *s
	shown.DeadGroups = append(slices.Clone(s.DeadGroups), queue.DeadGroup{
		Code: queue.Clean("other groups"), Endpoint: queue.Clean("enter: list all"), Open: s.DeadMore.Open,
	})
	src := DeadGroups(&shown)
	export := src.Export
	src.Export = func(i int) (string, []any) {
		if i == len(s.DeadGroups) {
			return "", nil // the row of the left-out groups is not exported
		}
		return export(i)
	}
	src.Note = cmp.Or(missing(s, "dead_groups"), more+"; enter on \"other groups\" lists all dead letters, to filter by code and endpoint")
	return src
}

// GroupID identifies a group across refreshes, for the cursor and the selection.
func GroupID(g queue.DeadGroup) string {
	return g.Source + "\x00" + g.Code.String() + "\x00" + g.Endpoint.String() + "\x00" + g.Domain.String() + "\x00" + strconv.FormatInt(g.SubscriptionID, 10)
}

// groupRank returns how urgent a group is: more if it still grows.
func groupRank(g queue.DeadGroup) int {
	for _, v := range last(g.Trend, 3) {
		if v > 0 {
			return rankCritical
		}
	}
	return rankWarning
}

// DeadLetters returns the second table of pane 5: the dead letters of one group.
func DeadLetters(rows []queue.DeadLetter) Source {
	id, event := 8, 1
	for _, d := range rows {
		if d.Source != "webhook" {
			event = 9                                // narrow: jobs have no event, and for an event dead letter the column kind has its type
			id = max(id, len(d.Source+":")+shortLen) // enough for a short id; the page shows the whole one
		}
	}
	return Source{
		Fields: queue.DeadLetterFields(),
		Sorts: []Sort{
			{Name: "failed, newest first", Column: "failed_at", Desc: true},
			{Name: "failed, oldest first", Column: "failed_at", Less: func(i, j int) bool { return rows[i].FailedAt.Before(rows[j].FailedAt) }},
			{Name: "requeued, most first", Column: "generation", Desc: true, Less: func(i, j int) bool { return rows[i].Generation > rows[j].Generation }},
			{Name: "event", Column: "event_type", Less: func(i, j int) bool { return rows[i].EventType.String() < rows[j].EventType.String() }},
		},
		Empty: []string{"No open dead letter in this group.", "All were requeued or closed, or none matches the filter. esc goes back to the groups."},
	}.with(List[queue.DeadLetter]{
		Name: "dlq", Rows: rows, ID: func(d queue.DeadLetter) string { return d.ID }, Title: DeadLetterTitle, First: "id state code endpoint event_type age_seconds failed_at generation domain",
		Look: func(d queue.DeadLetter, e Env) (table.Cell, theme.Style) {
			if d.State != "open" {
				return cell(e.Theme.G.Good, e.Theme.Accent), e.Theme.Accent
			}
			return cell(e.Theme.G.Critical, e.Theme.Critical), e.Theme.Text
		},
		Columns: []Column[queue.DeadLetter]{
			{Name: "id", Width: id, Max: max(id, 14), Look: strong, Say: short},
			{Name: "failed_at", Title: "failed", Width: 11},
			{Name: "age_seconds", Title: "age", Width: 8, Right: true},
			{Name: "state", Width: 8, Max: 9, Look: ofRow, Text: func(d queue.DeadLetter, _ Env) string {
				return queue.Choose(d.ErasedAt != nil, "erased", d.State)
			}, Plain: func(d queue.DeadLetter) string { return d.State }},
			{Name: "erased_at", Head: "ERASED", Plain: erased},
			{Name: "code", Width: 10, Max: 20, Drop: 3},
			{Name: "event_type", Title: "event", Head: "TYPE", Width: 14, Max: 34, Drop: event, Say: orDashed},
			{Name: "endpoint", Title: "endpoint / kind", Width: 16, Max: 40, Drop: 4, Look: dim},
			{Name: "domain", Width: 8, Max: 18, Drop: 5, Look: dim},
			{Name: "generation", Title: "requeued", Head: "REQUEUED BEFORE", Width: 8, Right: true, Drop: 2, Say: generations},
			{Name: "saga_id", Title: "saga", Width: 8, Max: 12, Right: true, Drop: 6, Look: dim, Say: orDashed,
				Plain: func(d queue.DeadLetter) string { return plainID(d.SagaID) }},
		},
	}.lines())
}

// DeadLetterTitle names a dead letter: its error and its destination.
func DeadLetterTitle(d queue.DeadLetter) string {
	switch d.Source {
	case "job":
		return d.Code.String() + " of job " + d.Endpoint.String()
	case "event":
		return d.Code.String() + " of event " + d.Domain.String() + "/" + d.EventType.String()
	}
	return d.Code.String() + " at " + d.Endpoint.String()
}

// erased returns when and by whom the payload of a dead letter was erased; "" = it was not erased.
func erased(d queue.DeadLetter) string {
	if d.ErasedAt == nil {
		return ""
	}
	return queue.Stamp(d.ErasedAt.UTC(), time.RFC3339) + " by " + d.ErasedBy.String()
}

func idOrDash(id int64, e Env) string {
	return queue.Choose(id == 0, e.Theme.G.Dash, strconv.FormatInt(id, 10))
}

func generations(e Env, v any) string {
	return queue.Choose(v == 0, e.Theme.G.Dash, fmt.Sprint(v)+e.Theme.G.Times)
}
