package views

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

// Audit returns the table of pane ga: who did what and why.
func Audit(rows []queue.AuditEntry) Source {
	return Source{
		Fields: fields("actor", "role", "action", "target", "reason", "outcome", queue.AuditOperation, "at", "age"),
		Sorts:  []Sort{{Name: "newest first", Column: "at", Desc: true}},
		Empty:  []string{"No action has been taken yet.", "Every action adds a row here: who, what, why, and the values before and after."},
	}.with(List[queue.AuditEntry]{
		Name: "audit", Rows: rows, ID: func(a queue.AuditEntry) string { return strconv.FormatInt(a.ID, 10) }, First: "id at actor db_role action target filter outcome reason before after",
		Look: byRank(func(a queue.AuditEntry) int { return outcomeRank(a.Outcome.String()) }),
		Columns: []Column[queue.AuditEntry]{
			{Name: "at", Title: "when", Head: "AT", Width: 14, Look: dim, Text: func(a queue.AuditEntry, e Env) string { return e.Second(a.At) }},
			{Name: "actor", Title: "who", Head: "ACTOR", Width: 8, Max: 16, Look: accent},
			{Name: "action", Width: 19, Max: 28, Look: strong, Say: func(_ Env, v any) string { return queue.AuditWords(fmt.Sprint(v)) }},
			{Name: "target", Width: 18, Want: 28, Max: 44, Text: func(a queue.AuditEntry, e Env) string {
				target := cmp.Or(queue.AuditTarget(a.Target.String()), a.Filter.String()) + change(a)
				if a.Folded() {
					target += " in " + Plural(*a.Batches, "batch", "batches")
				}
				return target
			}, LeadFor: "frozen_count", Lead: func(a queue.AuditEntry, e Env) string {
				if n := orZero(a.FrozenCount); n > 1 {
					return Count(n) + " " + e.Theme.G.Times + " "
				}
				return ""
			}},
			{Name: "frozen_count", Title: "selected", Width: 8, Max: 10, Right: true, Drop: 5},
			{Name: "changed", Width: 7, Max: 7, Right: true, Drop: 4},
			{Name: "outcome", Width: 8, Max: 12, Drop: 3, Look: ofRow},
			{Name: "reason", Width: 8, Want: 28, Max: 60, Drop: 1},
			{Name: "db_role", Title: "role", Width: 12, Max: 20, Drop: 6, Look: dim},
			{Name: "id", Title: "#", Head: "ID", Width: 6, Max: 8, Right: true, Drop: 6, Look: dim, Say: digits},
			{Name: "before"},
			{Name: "after"},
			{Name: "filter"},
			{Name: "operation_id"},
			{Name: "batches"},
			{Name: "last_at"},
		},
	}.lines())
}

// change returns what an action changed, for actions whose name and target do
// not say it: the new value of a flag, or whether a subscription was enabled
// or disabled.
func change(a queue.AuditEntry) string {
	switch a.Action.String() {
	case "flag_set", "flag_revert":
		if len(a.After) > 0 && string(a.After) != "null" {
			return " = " + shortJSON(a.After)
		}
	case "job_subscription_set":
		var was, is struct{ Enabled *bool }
		if json.Unmarshal(a.Before, &was) == nil && json.Unmarshal(a.After, &is) == nil && was.Enabled != nil && is.Enabled != nil && *was.Enabled != *is.Enabled {
			return queue.Choose(*is.Enabled, " enabled", " disabled")
		}
	}
	return ""
}

// outcomeRank returns how conspicuous an outcome is: refused actions are drawn
// as warnings.
func outcomeRank(outcome string) int {
	word, _, _ := strings.Cut(outcome, ":")
	return rank(word)
}

// AuditPage returns the page of one audit row with the values before and after.
func AuditPage(a queue.AuditEntry, e Env, w int) Page {
	p := newPage(e, w)
	p.head("#" + strconv.FormatInt(a.ID, 10) + " " + queue.AuditWords(a.Action.String()))
	p.pair("when", e.Stamp(a.At))
	p.pair("who", a.Actor.String()+" as "+a.DBRole.String()+from(a.ClientAddr.String()))
	p.pair("target", queue.AuditTarget(a.Target.String()))
	if a.ByRunner() {
		p.pair("done by", "a worker host, with login "+a.DBRole.String()+", for the operation that "+a.Actor.String()+" planned")
	}
	if a.OperationID != nil {
		p.pair("operation", strconv.FormatInt(*a.OperationID, 10))
	}
	p.pair("filter", a.Filter.String())
	p.pair("selected", e.rows(a.FrozenCount))
	p.pair("changed", e.rows(a.Changed))
	p.pair("reason", a.Reason.String())
	p.paint("outcome", a.Outcome.String(), e.tone(outcomeRank(a.Outcome.String())))
	p.head("Before")
	p.rawJSON(a.Before)
	p.head("After")
	p.rawJSON(a.After)
	if len(a.Claimed) > 0 && string(a.Claimed) != "null" {
		p.head("Reported by the client program, not verified")
		p.rawJSON(a.Claimed)
	}
	return p.done("#" + strconv.FormatInt(a.ID, 10))
}

// rows returns a number of rows; a dash if it is not known.
func (e Env) rows(n *int64) string {
	if n == nil {
		return e.Theme.G.Dash
	}
	return Plural(*n, "row", "rows")
}

func from(addr string) string {
	return queue.Choose(addr == "", "", " from "+addr)
}

// rawJSON shows a value as it is stored, without rounding numbers.
func (p *pageBuilder) rawJSON(raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		p.para("nothing", p.e.Theme.Dim)
		return
	}
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		b.Reset()
		b.Write(raw)
	}
	p.json(b.String(), p.e.Theme.Text)
}

// shortJSON returns a value in a few words: a scalar unchanged, an object as its member "value" if
// it has one.
func shortJSON(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return "nothing"
	}
	var o map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&o) == nil {
		if v, ok := o["value"].(string); ok {
			return queue.Clean(v).String()
		}
	}
	return queue.Clean(strings.Trim(string(raw), `"`)).String()
}
