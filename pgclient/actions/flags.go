package actions

// Setting a flag is conditional: it is refused if the time of the flag's last change is not the one
// that the preview saw.

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/queue"
)

func flagActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActFlagSet, Words: "flag set", Example: "qtop flag set webhook.worker.enabled false --for 30m --reason 'receiver is down'", Group: "Change a flag", Key: "E", Panes: []queue.PaneID{queue.PaneFlags, queue.PaneOverview, queue.PaneScheduler}, Verb: "Set", Undo: "set it back, or give it an expiry",
			Help: "change the value of a flag, with a reason and an optional expiry",
			Noun: "flag", Button: "Set {value}", Targets: queue.Targets{Name: "KEY", Of: "flag"},
			Danger: queue.DangerOne, Function: "public.fn_dot_config_set(text,text,text,text,timestamptz,timestamptz)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{
				{Name: "value", Positional: true, Label: "New value", Required: true},
				{Name: "for", Kind: queue.ArgDuration, Label: "For", Help: "reverts to the old value after this time", Empty: "permanent"},
			},
		}, plan: planFlag, apply: applyFlag},
	}
}

func planFlag(ctx context.Context, c *Planner, p *queue.Plan) error {
	return planSet(ctx, c, p, p.Request.Targets[0], p.Request.Args["value"])
}

// planSet previews setting a flag, for the duration Args["for"] or permanently.
func planSet(ctx context.Context, c *Planner, p *queue.Plan, key, to string) error {
	var value, kind, description, by, revertTo queue.Text
	var at, revertAt, setAt *time.Time
	var left *float64 // seconds until the pending revert
	err := c.act.QueryRow(ctx, `SELECT c.value, r.kind, c.description, c.updated_at, c.updated_by, v.revert_to, v.revert_at, v.set_at,
			CASE WHEN isfinite(v.revert_at) THEN extract(epoch FROM v.revert_at - clock_timestamp()) END::float8
		FROM public.dot_config c LEFT JOIN public.dot_config_rule r USING (key) LEFT JOIN public.dot_config_revert v USING (key) WHERE c.key = $1`, key).
		Scan(&value, &kind, &description, &at, &by, &revertTo, &revertAt, &setAt, &left)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	p.Count = 1
	p.Lines = append(p.Lines, line("flag", "%s", key))
	if at == nil { // a retry schedule for one kind or subscription that does not exist yet
		value, kind, p.Expect = queue.Clean("default"), queue.Clean(scheduleKind), notFound
		p.Lines = append(p.Lines, line("now", "the default schedule"))
	} else {
		p.Expect = at.UTC().Format(time.RFC3339Nano)
		p.Lines = append(p.Lines, line("what", "%s", description), line("now", "%s, set by %s at %s", value, by, queue.Stamp(*at, time.RFC3339)))
	}
	temporary := setAt != nil && setAt.Equal(*at) // the current value
	if p.Request.Action == queue.ActFlagSet && at != nil && value.String() != to {
		undo := map[string]string{"value": value.String()}
		if temporary && left != nil {
			undo["for"] = queue.DurationText(time.Duration(max(*left, 1)) * time.Second)
		}
		setBack(p, undo)
	}
	p.Lines = append(p.Lines, line("new", "%s", to))
	if kind.String() == scheduleKind {
		p.Lines = append(p.Lines, attemptTimes(to)...)
	}
	expires, err := expiry(p.Request)
	if err != nil {
		return err
	}
	if expires != nil {
		back := value
		if temporary {
			back = revertTo
		}
		addLine(p, "back", "to %s automatically after %s", back, queue.Span(int64(*expires)))
	}
	var rule, reason, old queue.Text
	err = c.act.QueryRow(ctx, `SELECT n.rule, n.reason, o.rule FROM public.fn_dot_config_refusal($1::text, $2::text, now() + make_interval(secs => $3), $4::timestamptz) n,
			public.fn_dot_config_refusal($1::text, $5::text) o`, key, to, expires, at, value.String()).Scan(&rule, &reason, &old)
	if err != nil {
		return err
	}
	if at == nil && rule.String() == "unknown_key" {
		p.Lines, p.Count = nil, 0
		return refuse(p, "unknown_key", "there is no flag "+key+c.meant(ctx, "flag", key))
	}
	if !rule.Empty() {
		p.Refused, p.Rule = reason.String(), rule.String()
	}
	if p.Undo != "" && slices.Contains([]string{"invalid_value", "conflict"}, old.String()) {
		p.Undo, p.Final = "", noWayBack
	}
	if resumesWebhooks(key, value.String(), to) {
		if err := c.released(ctx, p, nil); err != nil {
			return err
		}
	}
	if p.Refused == "" && value.String() != to {
		if err := c.blockedFlag(ctx, p, key, to); err != nil {
			return err
		}
	}
	if revertAt != nil {
		addLine(p, "cancels", "the pending revert to %s at %s", revertTo, queue.Stamp(*revertAt, time.RFC3339))
	}
	if p.Undo != "" && temporary && expires == nil && revertTo.String() != to {
		addLine(p, "undo", "sets %s for the time left, which then reverts to %s, not to %s", value, to, revertTo)
	}
	return nil
}

// resumesWebhooks reports whether hosts may send webhooks again after this change of a flag.
func resumesWebhooks(key, from, to string) bool {
	switch key {
	case "webhook.worker.enabled":
		return from != "true" && to == "true"
	case queue.TickInterval("saga_orchestrator"), queue.TickInterval("webhook_worker"):
		return from == "0" && to != "0"
	}
	return false
}

// scheduleKind is the kind of a flag whose value is a retry schedule: a list of waits.
const scheduleKind = "schedule"

// attemptTimes returns preview lines that say after how long each attempt of a retry schedule is
// made; nil if the schedule cannot be parsed.
func attemptTimes(list string) []queue.PlanLine {
	unit := map[string]int64{"s": 1, "m": 60, "h": 3600, "d": 86400}
	var at []string
	var seconds int64
	for _, wait := range strings.Split(list, " ") {
		number := strings.TrimRight(wait, "smhd")
		n, err := strconv.ParseInt(number, 10, 32) // of at most 100 waits in a schedule, their sum fits
		if err != nil || unit[wait[len(number):]] == 0 {
			return nil
		}
		seconds += n * unit[wait[len(number):]]
		at = append(at, queue.Span(seconds))
	}
	if len(at) > 20 {
		at = append(at[:20], "…", at[len(at)-1])
	}
	return []queue.PlanLine{line("attempts", "at %s after the first attempt, each wait ± 20 %%", strings.Join(at, ", "))}
}

// expiry returns Args["for"] in seconds; nil = permanent.
func expiry(r queue.Request) (*float64, error) {
	if r.Args["for"] == "" {
		return nil, nil
	}
	secs, err := queue.Seconds("--for", r.Args["for"])
	f := float64(secs)
	return &f, err
}

func applyFlag(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	return applySet(ctx, c, p, res, p.Request.Targets[0], p.Request.Args["value"])
}

// applySet sets the flag, unless it changed since the plan was made.
func applySet(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result, key, to string) error {
	expires, err := expiry(p.Request)
	if err != nil {
		return err
	}
	var expect any // nil: not compared
	switch p.Expect {
	case "":
	case notFound: // whatever is there by now is later
		expect = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	default:
		at, err := time.Parse(time.RFC3339Nano, p.Expect)
		if err != nil {
			return err
		}
		expect = at // infinity too: see package pgscan
	}
	a, err := c.call(ctx, "SELECT public.fn_dot_config_set($1::text, $2::text, $3::text, $4::text, clock_timestamp() + make_interval(secs => $5), $6::timestamptz)",
		key, to, p.Request.Actor, p.Request.Reason, expires, expect)
	if err != nil {
		return err
	}
	recordOne(res, key, "set", a)
	return nil
}
