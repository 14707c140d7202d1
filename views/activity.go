package views

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Activity returns the table of pane gl: the sessions that may hold up queues, those with the worst
// effect first.
func Activity(rows []queue.Activity) Source {
	return Source{
		Fields: queue.ActivityFields(),
		Sorts: []Sort{
			{Name: "blocking others first"},
			{Name: "transaction, oldest first", Column: "transaction_since", Less: func(i, j int) bool {
				a, b := rows[i].Begun, rows[j].Begun
				return a != nil && (b == nil || a.Before(*b))
			}},
		},
		Empty: []string{"No other session of this database has a transaction open, blocks, waits or listens."},
	}.with(List[queue.Activity]{
		Name: "activity", Rows: rows, ID: func(a queue.Activity) string { return a.ID },
		Title: func(a queue.Activity) string {
			return a.Login.String() + " " + a.Program.String() + " " + a.State.String()
		}, First: "pid login program state transaction_since effect",
		Word: queue.Activity.Field,
		Look: func(a queue.Activity, e Env) (table.Cell, theme.Style) {
			r := activityRank(a, e.Now)
			return e.sign(r), e.tone(r)
		},
		Columns: []Column[queue.Activity]{
			{Name: "pid", Width: 7, Max: 8, Right: true, Look: strong, Text: func(a queue.Activity, e Env) string { return idOrDash(orZero(a.Pid), e) }},
			{Name: "login", Width: 10, Max: 24, Look: accent},
			{Name: "program", Width: 12, Want: 24, Max: 40},
			{Name: "client", Width: 9, Max: 20, Drop: 4, Look: dim},
			{Name: "state", Width: 10, Max: 20, Lively: true, Look: ofRow, Say: func(_ Env, v any) string {
				return strings.Replace(fmt.Sprint(v), "idle in transaction", "idle in tx", 1)
			}},
			{Name: "transaction_since", Title: "tx open", Head: "TRANSACTION SINCE", Width: 8, Right: true, Say: ago},
			{Name: "snapshot_age", Title: "snapshot", Width: 9, Right: true, Drop: 2},
			{Name: "effect", Title: "effect on queues", Head: "EFFECT", Lively: true, Width: 26, Want: 50, Max: 80, Look: ofRow,
				Text: func(a queue.Activity, _ Env) string { return activityEffect(a) }, Plain: activityEffect},
			{Name: "waits_for", Title: "waits for", Lively: true, Width: 12, Max: 28, Drop: 3, Look: dim},
			{Name: "kind", Head: "KIND"},
			{Name: "id", Head: "ID"},
		},
	}.lines())
}

// momentary is the age of a transaction below which its locks are no trouble:
// every busy database has some.
const momentary = time.Second

// activityRank returns how urgent a session is: highest if it blocks others,
// or if it is idle in a transaction and so keeps vacuum from removing dead
// rows.
func activityRank(a queue.Activity, now time.Time) int {
	switch {
	case a.Seen && a.Begun != nil && now.Sub(*a.Begun) < momentary:
		return rankQuiet
	case len(a.Blocks) > 0:
		return rankCritical
	case a.Oldest && a.State.String() != "active", len(a.BlockedBy) > 0, !a.Seen:
		return rankWarning
	}
	return rankQuiet
}

// activityEffect returns the effects of a session on the queues, the worst first.
func activityEffect(a queue.Activity) string {
	var parts []string
	if !a.Seen {
		parts = append(parts, "hidden: qtop lacks the role pg_read_all_stats")
	}
	if n := len(a.Blocks); n > 0 {
		parts = append(parts, "blocks "+pids(a.Blocks))
	}
	if len(a.BlockedBy) > 0 {
		parts = append(parts, "waits for "+pids(a.BlockedBy))
	}
	if a.Oldest {
		parts = append(parts, "oldest snapshot")
	}
	if len(a.Tables) > 0 {
		parts = append(parts, "locks "+tableNames(a))
	}
	switch {
	case a.Listens:
		parts = append(parts, "listens")
	case a.Ours && len(parts) == 0:
		parts = append(parts, "qtop itself")
	}
	return strings.Join(parts, ", ")
}

func tableNames(a queue.Activity) string {
	names := make([]string, len(a.Tables))
	for i, t := range a.Tables {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

// pids returns up to five pids as text.
func pids(list []int64) string {
	words := make([]string, 0, 5)
	for i, n := range list {
		if i == 5 {
			return strings.Join(words, " ") + fmt.Sprintf(" and %d more", len(list)-i)
		}
		words = append(words, pidWord(n))
	}
	return strings.Join(words, " ")
}

// pidWord returns a blocking pid as text; 0 is a prepared transaction.
func pidWord(n int64) string {
	if n == 0 {
		return "a prepared transaction"
	}
	return strconv.FormatInt(n, 10)
}

// ActivityPage returns the page of one session, with the sessions it waits for and those that
// wait for it.
func ActivityPage(a queue.Activity, all []queue.Activity, e Env, w int) Page {
	title := a.Program.String()
	if a.Pid != nil {
		title = "session " + strconv.FormatInt(*a.Pid, 10)
	}
	p := newPage(e, w)
	p.head(title)
	p.pair("login", a.Login.String())
	p.pair("program", a.Program.String())
	p.pair("from", orSocket(a))
	p.paint("state", stateSince(a, e), e.tone(activityRank(a, e.Now)))
	if a.Begun != nil {
		p.pair("transaction", "open for "+e.Ago(*a.Begun)+", since "+e.Stamp(*a.Begun))
	}
	if a.Snapshot != nil {
		s := Plural(*a.Snapshot, "transaction has", "transactions have") + " begun since its snapshot"
		if a.Oldest {
			s += ": vacuum cannot remove any row that died since then; no session holds an older snapshot"
		}
		p.pair("snapshot", s)
	}
	p.pair("waits for", a.Waits.String())
	p.pair("locks", tableNames(a))
	p.paint("effect", activityEffect(a), e.tone(activityRank(a, e.Now)))
	p.pair("id", a.ID)
	if e.Brief {
		return p.done(title)
	}
	p.sessions("Blocked by", a.BlockedBy, all)
	p.sessions("Blocked sessions", a.Blocks, all)
	return p.done(title)
}

func orSocket(a queue.Activity) string {
	if a.Kind == "session" && a.Client.Empty() {
		return "a local socket"
	}
	return a.Client.String()
}

func stateSince(a queue.Activity, e Env) string {
	if a.Since == nil {
		return a.State.String()
	}
	return a.State.String() + " for " + e.Ago(*a.Since)
}

// sessions adds a part to the page with one line per session. list has their
// pids, all their details.
func (p *pageBuilder) sessions(head string, list []int64, all []queue.Activity) {
	if len(list) == 0 {
		return
	}
	p.head(head)
	for _, n := range list {
		words := "not listed here"
		for _, x := range all {
			if x.Pid != nil && *x.Pid == n {
				words = strings.TrimSpace(x.Login.String() + " " + x.Program.String() + ", " + stateSince(x, p.e))
			}
		}
		p.pair(pidWord(n), words)
	}
}
