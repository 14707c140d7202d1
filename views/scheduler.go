package views

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Scheduler returns the tables of pane 9: tick workers, and below them the scheduler mode.
func Scheduler(s *queue.Snapshot) Source {
	var modes []queue.Flag
	rows := s.OrEmpty().Ticks
	if f, ok := s.Flag(queue.SchedulerMode); ok {
		modes = []queue.Flag{f}
	}
	return Source{
		Sorts: []Sort{
			{Name: "state, worst first", Column: "state", Desc: true, Less: func(i, j int) bool {
				if c := cmp.Compare(tickRank(rows[i]), tickRank(rows[j])); c != 0 {
					return c > 0
				}
				return rows[i].Name.String() < rows[j].Name.String() // by name, because a run must not reorder the rows
			}},
			{Name: "last run, oldest first", Column: "age_seconds", Desc: true, Less: func(i, j int) bool { return beatAge(rows[i].AgeSeconds) > beatAge(rows[j].AgeSeconds) }},
			{Name: "worker", Column: "worker_name", Less: func(i, j int) bool { return rows[i].Name.String() < rows[j].Name.String() }},
			{Name: "every, shortest first", Column: "configured_interval_seconds", Less: func(i, j int) bool { return rows[i].IntervalSeconds < rows[j].IntervalSeconds }},
		},
		Empty: []string{"There is no tick worker in this database.", "qtop migrate up installs them."},
		Note:  missing(s, "ticks"),
	}.with(List[queue.TickWorker]{
		Name: "scheduler", Rows: rows, ID: func(t queue.TickWorker) string { return t.Name.String() },
		First:  "state worker_name configured_interval_seconds age_seconds last_run_at next_due_at last_source last_work_at done_total mode cron_job last_result",
		Filter: "worker=worker_name state why by=last_source age=age_seconds result cron=cron_job",
		Word:   func(t queue.TickWorker, word string) (any, bool) { return TickResult(t.LastResult), word == "result" },
		Look:   byRank(tickRank),
		Columns: []Column[queue.TickWorker]{
			{Name: "worker_name", Title: "worker", Width: 22, Max: 30, Look: strong},
			{Name: "state", Width: 7, Look: ofRow, Text: func(t queue.TickWorker, _ Env) string { return tickState(t) }, Plain: func(t queue.TickWorker) string { return queue.Choose(t.Stale, "STALE", t.State) }},
			{Name: "configured_interval_seconds", Title: "every", Width: 6, Right: true, Look: dim, Text: func(t queue.TickWorker, e Env) string {
				return queue.Choose(t.IntervalSeconds == 0, e.Theme.G.Dash, Age(t.IntervalSeconds))
			}},
			{Name: "age_seconds", Title: "last run", Head: "AGE", Width: 9, Right: true, Look: ofRow, Text: func(t queue.TickWorker, _ Env) string {
				return sinceBeat(t.AgeSeconds, Age)
			}, Plain: func(t queue.TickWorker) string { return sinceBeat(t.AgeSeconds, PlainAge) }},
			{Name: "next_due_at", Title: "due", Head: "NEXT DUE", Width: 9, Right: true, Drop: 2, Text: func(t queue.TickWorker, e Env) string { return e.due(t) }},
			{Name: "last_source", Title: "by", Width: 8, Lively: true, Drop: 4, Look: dim, Say: orDashed},
			{Name: "last_work_at", Title: "last work", Width: 9, Right: true, Drop: 5, Look: dim, Say: ago},
			{Name: "done_total", Title: "done", Width: 8, Max: 12, Right: true, Drop: 6},
			{Name: "last_result", Lively: true, Width: 16, Want: 24, Max: 60, Drop: 1,
				Text: func(t queue.TickWorker, e Env) string { return orDash(TickResult(t.LastResult), e) },
				Tone: func(t queue.TickWorker, e Env) theme.Style {
					return queue.Choose(t.State == "failed", e.Theme.Critical, e.Theme.Text)
				},
				Plain: func(t queue.TickWorker) string { return TickResult(t.LastResult) }},
			{Name: "cron_job", Width: 14, Max: 40, Drop: 3, Look: dim, Text: tickCron, Plain: func(t queue.TickWorker) string {
				return t.CronJob.String() + queue.Choose(t.CronJob.Empty() || !t.CronRunAs.Empty(), "", " (not installed)")
			}},
			{Name: "last_run_at", Head: "LAST RUN"},
			{Name: "mode"},
			{Name: "stale_threshold_seconds", Head: "STALE AFTER"},
			{Name: "why"},
		},
	}.lines(), modeList(modes, rows))
}

// modeList returns the table of the scheduler mode, which has one row.
func modeList(modes []queue.Flag, ticks []queue.TickWorker) lines {
	jobs, missing := modeJobs(ticks)
	tone := func(f queue.Flag, e Env) (table.Cell, theme.Style) {
		r := rank(flagState(f))
		if missing && (f.Value.String() == "pg_cron" || f.Value.String() == "hybrid") {
			r = max(r, rankWarning)
		}
		return e.sign(r), e.tone(r)
	}
	return List[queue.Flag]{
		Name: "flags", Rows: modes, ID: func(f queue.Flag) string { return f.Key.String() }, Look: tone,
		Columns: []Column[queue.Flag]{
			{Name: "key", Title: "SCHEDULER MODE", Width: 20, Max: 24, Look: strong},
			{Name: "value", Title: "mode", Width: 8, Look: ofRow},
			{Name: "what_that_means", Title: "meaning", Head: "MEANING", Width: 30, Want: 48, Max: 70, Text: func(f queue.Flag, e Env) string { return modeMeans(f.Value.String()) }},
			{Name: "cron_jobs", Width: 18, Max: 40, Drop: 1, Look: ofRow, Text: func(queue.Flag, Env) string { return jobs }},
			{Name: "updated_by", Title: "by", Width: 8, Max: 16, Drop: 2, Look: dim},
			{Name: "reason", Width: 12, Max: 40, Drop: 3, Look: dim},
		},
	}.lines()
}

// tickRank returns how urgent a tick worker is: failed and late ones most. One
// that is switched off counts as a warning even if that is intended.
func tickRank(t queue.TickWorker) int {
	switch {
	case t.State == "failed", t.Stale && t.State != "off":
		return rankCritical
	case t.State == "off", !t.Why.Empty(), t.State == "unwatched":
		return rankWarning
	}
	return rankQuiet
}

// tickState returns the state as the screen shows it.
func tickState(t queue.TickWorker) string {
	switch {
	case t.IntervalSeconds == 0:
		return "PAUSED"
	case t.State == "off":
		return "OFF"
	case t.State == "failed":
		return "FAILED"
	case t.Stale:
		return "STALE"
	case t.State == "unwatched":
		return "LATE" // late although there is no alert, because monitoring is off (a banner shows that)
	}
	return t.State
}

// due returns when a worker is due again.
func (e Env) due(t queue.TickWorker) string {
	switch {
	case t.NextDueAt == nil:
		return e.Theme.G.Dash
	case !t.NextDueAt.After(e.Now):
		return "now"
	}
	return e.In(*t.NextDueAt)
}

func orDash(s string, e Env) string {
	return cmp.Or(s, e.Theme.G.Dash)
}

// tickCron returns the name of a worker's pg_cron job, and whether the job is installed.
func tickCron(t queue.TickWorker, e Env) string {
	switch {
	case t.CronJob.Empty():
		return e.Theme.G.Dash
	case t.CronRunAs.Empty():
		return "not installed"
	}
	return t.CronSchedule.String() + " as " + t.CronRunAs.String()
}

// modeMeans says what a scheduler mode does.
func modeMeans(mode string) string {
	switch mode {
	case "external":
		return "worker hosts run tick workers; runs by pg_cron are refused"
	case "pg_cron":
		return "pg_cron runs tick workers with a cron job, worker hosts the rest"
	case "hybrid":
		return "both run tick workers; one run per interval"
	}
	return "invalid value: runs by pg_cron are refused"
}

// modeJobs says how many pg_cron jobs are installed; missing reports whether some are not.
func modeJobs(ticks []queue.TickWorker) (words string, missing bool) {
	all, in := 0, 0
	for _, t := range ticks {
		if !t.CronJob.Empty() {
			all++
			if !t.CronRunAs.Empty() {
				in++
			}
		}
	}
	return fmt.Sprintf("%d of %d installed", in, all), in < all
}

// TickResult returns the result of a run in a few words: its error; without one, the counts above
// 0.
func TickResult(raw json.RawMessage) string {
	var o map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if len(raw) == 0 || d.Decode(&o) != nil || o == nil {
		return ""
	}
	if failure, ok := o["error"].(string); ok {
		return queue.Clean(failure).String()
	}
	var parts, took []string
	for _, k := range slices.Sorted(maps.Keys(o)) {
		switch v := o[k].(type) {
		case json.Number:
			if of, ok := strings.CutSuffix(k, "_ms"); ok {
				took = append(took, strings.ReplaceAll(of, "_", " ")+" "+v.String()+" ms")
			} else if v != "0" {
				parts = append(parts, strings.ReplaceAll(k, "_", " ")+" "+v.String())
			}
		case bool:
			if !v { // false, for example "monitoring"
				parts = append(parts, strings.ReplaceAll(k, "_", " ")+" off")
			}
		}
	}
	if len(parts) == 0 {
		parts = []string{"nothing to do"}
	}
	return queue.Clean(strings.Join(append(parts, took...), ", ")).String()
}

// CronState returns the state of a cron job in one word.
func CronState(j queue.CronJob) string {
	switch {
	case j.Found == nil:
		return "installed" // by the record of qtop: pg_cron itself shows a job only to its owner
	case !*j.Found && !j.RunAs.Empty():
		return "GONE"
	case !*j.Found:
		return "absent"
	case j.Active != nil && !*j.Active:
		return "INACTIVE"
	case j.LastStatus.String() == "failed":
		return "FAILED"
	}
	return "scheduled"
}
