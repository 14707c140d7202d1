package actions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/lists"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
)

func schedulerActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActTick, Words: "tick", Example: "qtop tick iu_outbound_default --reason 'events wait'", Key: "T", Panes: []queue.PaneID{queue.PaneHost, queue.PaneScheduler, queue.PaneNotify}, Verb: "Tick",
			Help: "run a tick worker now, regardless of its interval",
			Noun: "tick worker", Button: "Tick {worker}", Safe: "Not now", Targets: queue.Targets{Of: "tick worker"},
			Danger: queue.DangerOne, Function: "public.fn_queue_tick_now(text,text,text)", Role: "workflow_admin", Why: true,
			Args: []queue.Arg{{Name: "worker", Kind: queue.ArgWord, Positional: true, Label: "Tick worker", Required: true}},
		}, plan: planTick, apply: applyTick},
		{Action: queue.Action{
			ID: queue.ActTickPause, Words: "scheduler pause", Example: "qtop scheduler pause iu_outbound_default --for 30m --reason 'maintenance'", Key: "P", Panes: []queue.PaneID{queue.PaneScheduler}, Verb: "Pause",
			Help: "set the interval of a tick worker to 0, for a limited time or until it is resumed",
			Noun: "tick worker", Button: "Pause {targets}", Safe: "Not now", Opposite: queue.ActTickResume, Targets: queue.Targets{Name: "WORKER", Of: "tick worker"},
			Danger: queue.DangerOne, Function: "public.fn_dot_config_set(text,text,text,text,timestamptz,timestamptz)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{{Name: "for", Kind: queue.ArgDuration, Label: "For", Default: "30m", Help: "resumed automatically after this time", Empty: "until an operator resumes it"}},
		}, plan: planTickPause, apply: applyTickFlag},
		{Action: queue.Action{
			ID: queue.ActTickResume, Words: "scheduler resume", Example: "qtop scheduler resume iu_outbound_default --reason 'maintenance is over'", Key: "P", Panes: []queue.PaneID{queue.PaneScheduler}, Verb: "Resume",
			Help: "restore the previous interval of a paused tick worker",
			Noun: "tick worker", Button: "Resume {targets}", Opposite: queue.ActTickPause, Targets: queue.Targets{Name: "WORKER", Of: "tick worker"},
			Danger: queue.DangerOne, Function: "public.fn_dot_config_set(text,text,text,text,timestamptz,timestamptz)", Role: "workflow_admin", Reason: true,
		}, plan: planTickResume, apply: applyTickFlag},
		{Action: queue.Action{
			ID: queue.ActCronInstall, Words: "scheduler install", Example: "qtop scheduler install --reason 'pg_cron drives the ticks'", Panes: []queue.PaneID{queue.PaneScheduler}, Verb: "Install",
			Help:  "create the pg_cron jobs that run the tick workers inside the database, as this login",
			Title: "Install cron jobs", Button: "Install {count} cron jobs", Safe: "Not now", Opposite: queue.ActCronRemove,
			Danger: queue.DangerOne, Function: "public.fn_queue_scheduler_install(text,text,boolean)", Role: "workflow_admin", Reason: true,
		}, plan: planCron, apply: applyCron},
		{Action: queue.Action{
			ID: queue.ActCronRemove, Words: "scheduler remove", Example: "qtop scheduler remove --reason 'hosts drive the ticks'", Panes: []queue.PaneID{queue.PaneScheduler}, Verb: "Remove",
			Help:  "unschedule the pg_cron jobs of the queue",
			Title: "Remove cron jobs", Button: "Remove {count} cron jobs", Opposite: queue.ActCronInstall,
			Danger: queue.DangerOne, Function: "public.fn_queue_scheduler_remove(text,text,boolean)", Role: "workflow_admin", Reason: true,
		}, plan: planCron, apply: applyCron},
	}
}

// tickRow is the part of a tick worker's status that the previews show.
type tickRow struct {
	Every   int64
	Mode    queue.Text
	State   string
	FlagKey queue.Text
	LastRun *time.Time
}

// tickWorker reads the status of a tick worker and adds it to the preview.
func tickWorker(ctx context.Context, c *Planner, p *queue.Plan, name string) (t tickRow, err error) {
	err = c.act.QueryRow(ctx, `SELECT configured_interval_seconds, mode, state, flag_key, last_run_at
		FROM public.v_queue_scheduler_status WHERE worker_name = $1`, name).Scan(&t.Every, &t.Mode, &t.State, &t.FlagKey, &t.LastRun)
	if errors.Is(err, pgx.ErrNoRows) {
		do := "qtop scheduler lists them"
		if near := c.client.Nearest(ctx, "tick worker", name); near != "" {
			do = "did you mean " + near + "? " + do
		}
		return t, queue.NewError(queue.KindUsage, "there is no tick worker "+name, "", do)
	}
	if err != nil {
		return t, err
	}
	ran := "never"
	if t.LastRun != nil {
		ran = queue.Stamp(*t.LastRun, time.RFC3339)
	}
	p.Count = 1
	p.Lines = append(p.Lines, line("worker", "%s, every %d s, %s", name, t.Every, t.State), line("last run", "%s", ran))
	return t, nil
}

func planTick(ctx context.Context, c *Planner, p *queue.Plan) error {
	name := p.Request.Args["worker"]
	t, err := tickWorker(ctx, c, p, name)
	if err == nil && t.State == "off" {
		p.Refused, p.Rule = fmt.Sprintf("the flag %[1]s is off, so %[2]s does not run: qtop flag set %[1]s true --reason R", t.FlagKey, name), "off"
		if t.Every == 0 {
			p.Refused = name + " is paused (" + queue.TickInterval(name) + " is 0): resume it first"
		}
	}
	return err
}

func applyTick(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	name := p.Request.Args["worker"]
	ctx, cancel := context.WithTimeout(ctx, pgpool.WorkTimeout)
	defer cancel()
	var raw []byte
	err := c.act.QueryRow(ctx, "SELECT public.fn_queue_tick_now($1::text, $2::text, $3::text)", name, p.Request.Actor, p.Request.Reason).Scan(&raw)
	if err != nil {
		return err
	}
	t, err := work.ParseTick(raw)
	if err != nil {
		return err
	}
	res.AuditID = t.AuditID
	out := queue.Outcome{ID: name, Outcome: "ran", Why: queue.Clean(tickSummary(t))}
	switch {
	case t.Failed:
		res.Refused = t.Error
		out.Outcome, out.Why = "failed", queue.Clean(t.Error)
		res.Skipped++
	case !t.Ran:
		res.Refused = t.Reason
		out.Outcome, out.Why = "skipped", queue.Clean(t.Reason)
		res.Skipped++
	default:
		res.Done++
	}
	res.Results = append(res.Results, out)
	return nil
}

// tickSummary lists the counters of a tick that are not 0.
func tickSummary(t work.TickResult) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(t.Result)) {
		if n := t.Result[k]; n != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", strings.ReplaceAll(k, "_", " "), n))
		}
	}
	if len(parts) == 0 {
		parts = []string{"nothing to do"}
	}
	return strings.Join(parts, ", ") + fmt.Sprintf(", in %.1f ms", t.TookMS)
}

// toInterval is the request argument in which planTickPause and planTickResume tell apply which
// interval to set.
const toInterval = "interval"

func planTickPause(ctx context.Context, c *Planner, p *queue.Plan) error {
	name := p.Request.Targets[0]
	t, err := tickWorker(ctx, c, p, name)
	if err != nil {
		return err
	}
	if t.Every == 0 {
		return refuse(p, "paused", name+" is paused already: its interval is 0")
	}
	p.Request.Args[toInterval] = "0"
	return planSet(ctx, c, p, queue.TickInterval(name), "0")
}

// planTickResume finds the interval to restore: the value that a temporary pause reverts to,
// otherwise the last interval above 0 in the audit, otherwise the default.
func planTickResume(ctx context.Context, c *Planner, p *queue.Plan) error {
	name := p.Request.Targets[0]
	t, err := tickWorker(ctx, c, p, name)
	if err != nil {
		return err
	}
	if t.Every != 0 {
		return refuse(p, "not_paused", fmt.Sprintf("%s is not paused: it runs every %d s", name, t.Every))
	}
	var to string
	err = c.act.QueryRow(ctx, `SELECT COALESCE(
		(SELECT v.revert_to FROM public.dot_config_revert v WHERE v.key = c.key AND v.set_at = c.updated_at AND v.revert_to ~ '^[1-9][0-9]{0,8}$'),
		(SELECT a.before ->> 'value' FROM public.queue_operator_action a WHERE a.target = c.key AND a.action IN ('flag_set', 'flag_revert')
			AND a.outcome = 'done' AND a.before ->> 'value' ~ '^[1-9][0-9]{0,8}$' ORDER BY a.id DESC LIMIT 1),
		r.default_value) FROM public.dot_config c JOIN public.dot_config_rule r USING (key) WHERE c.key = $1`, queue.TickInterval(name)).Scan(&to)
	if err != nil {
		return err
	}
	p.Request.Args[toInterval] = to
	return planSet(ctx, c, p, queue.TickInterval(name), to)
}

func applyTickFlag(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	return applySet(ctx, c, p, res, queue.TickInterval(p.Request.Targets[0]), p.Request.Args[toInterval])
}

// cronAnswer is the result of installing or removing the cron jobs.
type cronAnswer struct {
	answer
	RunAs string `json:"run_as"`
	Mode  string `json:"mode"`
}

func cronFunction(a queue.ActionID) string {
	if a == queue.ActCronRemove {
		return "SELECT public.fn_queue_scheduler_remove($1::text, $2::text, $3::boolean)"
	}
	return "SELECT public.fn_queue_scheduler_install($1::text, $2::text, $3::boolean)"
}

func planCron(ctx context.Context, c *Planner, p *queue.Plan) error {
	var a cronAnswer
	if err := c.act.QueryRow(ctx, cronFunction(p.Request.Action), p.Request.Actor, p.Request.Reason, true).Scan(&a); err != nil {
		return err
	}
	jobs, err := lists.CronJobs(ctx, c.client.Read())
	if err != nil {
		return err
	}
	if a.Refused {
		p.Refused, p.Rule = a.Reason, a.Rule
		return c.cronInDatabase(ctx, p, jobs)
	}
	p.Results = a.outcomes("")
	if p.Request.Action == queue.ActCronInstall {
		p.Lines = append(p.Lines, line("runs as", "%s", a.RunAs), line("mode", "%s", a.Mode))
		if a.Mode != "pg_cron" && a.Mode != "hybrid" {
			addLine(p, "note", "these ticks are refused until %s is pg_cron or hybrid", queue.SchedulerMode)
		}
	}
	if p.Request.Action == queue.ActCronRemove && slices.ContainsFunc(jobs, func(j queue.CronJob) bool { return !j.RunAs.Empty() }) {
		var mode string
		if err := c.act.QueryRow(ctx, "SELECT value FROM public.dot_config WHERE key = $1", queue.SchedulerMode).Scan(&mode); err != nil {
			return err
		}
		if mode == "pg_cron" {
			addLine(p, "note", "%s is pg_cron: without these jobs nobody runs their tick workers; before, let hosts run them: qtop flag set %[1]s external --reason R", queue.SchedulerMode)
		}
	}
	for i, r := range p.Results {
		if strings.HasPrefix(r.Outcome, "would_") {
			p.Count++
		}
		if i < len(jobs) {
			addLine(p, r.ID, "%s  %s: %s", jobs[i].Schedule, jobs[i].Worker, strings.ReplaceAll(r.Outcome, "_", " "))
		}
	}
	return nil
}

// cronInDatabase adds the statements that a superuser must run in the database of pg_cron, if that
// is another database.
func (c *Planner) cronInDatabase(ctx context.Context, p *queue.Plan, jobs []queue.CronJob) error {
	if p.Rule != "no_pg_cron" || !strings.Contains(p.Refused, "cron.schedule_in_database") {
		return nil
	}
	var db string
	if err := c.act.QueryRow(ctx, "SELECT current_database()").Scan(&db); err != nil {
		return err
	}
	for _, j := range jobs {
		p.Lines = append(p.Lines, line("SQL to run", "SELECT cron.schedule_in_database('%s', '%s', $$SELECT public.fn_queue_tick_request('%s', 'pg_cron')$$, '%s', 'LOGIN');",
			j.Name, j.Schedule, j.Worker, strings.ReplaceAll(db, "'", "''")))
	}
	return nil
}

func applyCron(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	return c.applyMany(ctx, res, cronFunction(p.Request.Action), p.Request.Actor, p.Request.Reason, false)
}
