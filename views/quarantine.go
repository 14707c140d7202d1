package views

// The table of rows that are in quarantine because a step of a tick worker fails on them.

import (
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
)

// Quarantine returns the table of rows in quarantine.
func Quarantine(rows []queue.Quarantined) Source {
	return Source{
		Sorts: []Sort{{Name: "set aside first"}},
		Empty: []string{"No row makes a step fail."},
	}.with(List[queue.Quarantined]{
		Name: "quarantine", Rows: rows, ID: func(q queue.Quarantined) string { return strconv.FormatInt(q.ID, 10) },
		Title:  func(q queue.Quarantined) string { return q.Step.String() + " of " + q.Target.String() },
		First:  "quarantine_id step target attempts code set_aside_at next_try_at error",
		Filter: "id=quarantine_id step target code error attempts",
		Look:   byRank(quarantineRank),
		Columns: []Column[queue.Quarantined]{
			{Name: "quarantine_id", Title: "id", Head: "ID", Width: 6, Max: 10, Right: true, Look: strong},
			{Name: "step", Width: 16, Max: 24, Look: accent},
			{Name: "target", Width: 20, Want: 36, Max: 60, Look: strong},
			{Name: "attempts", Width: 8, Right: true},
			{Name: "code", Width: 6, Look: ofRow},
			{Name: "set_aside_at", Title: "set aside", Head: "SET ASIDE", Width: 11, Drop: 2},
			{Name: "next_try_at", Title: "next", Head: "NEXT", Width: 11, Drop: 3, Look: dim},
			{Name: "error", Width: 20, Want: 50, Max: 90, Look: dim},
			{Name: "first_failed_at", Head: "FIRST FAILED"},
			{Name: "last_failed_at", Head: "LAST FAILED"},
		},
	}.lines())
}

// quarantineRank returns how urgent a row in quarantine is: more if it is not
// retried automatically, because then somebody must act.
func quarantineRank(q queue.Quarantined) int {
	if q.SetAside != nil {
		return rankWarning
	}
	return rankQuiet
}
