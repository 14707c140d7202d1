// Package actions is how anything changes: a request is planned (a fresh read, an
// exact preview), then applied by the same code with what the plan saw as the
// condition. The functions of the schema do the work, check the right and write
// the audit row in their own transaction.
package actions

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

// Actions plans and applies on a client's connections.
type Actions struct {
	client *pgclient.Client
	act    *pgpool.Pool
}

// New acts through a client.
func New(c *pgclient.Client) *Actions { return &Actions{client: c, act: c.Acting()} }

// operation is one action: its preview and its doing.
type operation struct {
	plan  func(context.Context, *Actions, *queue.Plan) error
	apply func(context.Context, *Actions, queue.Plan, *queue.Result) error
}

func operations() map[queue.ActionID]operation {
	return map[queue.ActionID]operation{
		queue.ActAck:            {planAck, applyAck},
		queue.ActUnack:          {planAck, applyUnack},
		queue.ActRequeue:        {planLetters, applyLetters},
		queue.ActResolve:        {planLetters, applyLetters},
		queue.ActReopen:         {planLetters, applyLetters},
		queue.ActUndoRequeue:    {planLetters, applyLetters},
		queue.ActReveal:         {planReveal, applyReveal},
		queue.ActFlagSet:        {planFlag, applyFlag},
		queue.ActExecRegister:   {planRegister, applyRegister},
		queue.ActExecOwner:      {planOwner, applyOwner},
		queue.ActExecDeregister: {planDeregister, applyDeregister},
		queue.ActJobCancel:      {planJobCancel, applyJobCancel},
		queue.ActLeaseRelease:   {planLeaseRelease, applyLeaseRelease},
		queue.ActJobSubscribe:   {planSubscribe, applySubscribe},
		queue.ActJobRuleOff:     {planRuleTurn, applySubscribe},
		queue.ActJobRuleOn:      {planRuleTurn, applySubscribe},
		queue.ActBulkPlan:       {planBulk, applyBulk},
		queue.ActBulkRun:        {planTurn, applyTurn},
		queue.ActBulkPause:      {planTurn, applyTurn},
		queue.ActBulkResume:     {planTurn, applyTurn},
		queue.ActBulkAbort:      {planTurn, applyTurn},
		queue.ActBulkRate:       {planTurn, applyTurn},
		queue.ActBulkUndo:       {planTurn, applyTurn},
		queue.ActSuspend:        {planGate, applyGate},
		queue.ActResume:         {planGate, applyGate},
		queue.ActNotifyRequeue:  {planNotificationRequeue, applyNotificationRequeue},
		queue.ActRuleAdd:        {planRule, applyRule},
		queue.ActRuleMute:       {planMute, applyMute},
		queue.ActRuleUnmute:     {planMute, applyMute},
		queue.ActTick:           {planTick, applyTick},
		queue.ActTickPause:      {planTickPause, applyTickFlag},
		queue.ActTickResume:     {planTickResume, applyTickFlag},
		queue.ActCronInstall:    {planCron, applyCron},
		queue.ActCronRemove:     {planCron, applyCron},
		queue.ActMark:           {planMark, applyMark},
		queue.ActRouteSet:       {planRouting, applyRouting},
		queue.ActConsumerSet:    {planRouting, applyRouting},
		queue.ActAdopt:          {planAdopt, applyAdopt},
	}
}

// Plan reads what the request would do. It changes nothing.
func (c *Actions) Plan(ctx context.Context, r queue.Request) (queue.Plan, error) {
	op, ok := operations()[r.Action]
	if !ok {
		return queue.Plan{}, &queue.Error{Kind: queue.KindUsage, What: queue.Clean("there is no action " + string(r.Action))}
	}
	if r.Actor == "" {
		r.Actor = c.client.Actor()
	}
	if r.Args == nil {
		r.Args = map[string]string{}
	}
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	var err error
	if r.Action == queue.ActJobSubscribe {
		err = c.ruleAsItStands(ctx, r)
	}
	a, _ := queue.ActionByID(r.Action)
	for _, arg := range a.Args {
		v, given := r.Args[arg.Name]
		if !given && arg.Default != "" { // what was given empty is not silently another value
			r.Args[arg.Name] = arg.Default
			v = arg.Default
		}
		if v == "" && arg.Required {
			return queue.Plan{}, &queue.Error{Kind: queue.KindUsage, What: queue.Clean(arg.Name + " is needed"), Do: queue.Clean(arg.Hint())}
		}
	}
	if a.Reason && strings.TrimSpace(r.Reason) == "" {
		return queue.Plan{}, &queue.Error{Kind: queue.KindUsage, What: queue.Clean("a reason is needed"), Do: queue.Clean("--reason TEXT")}
	}
	p := queue.Plan{Request: r, ReadAt: started}
	if err == nil {
		err = op.plan(ctx, c, &p)
	}
	err = pgerror.Translate(err)
	p.Took = time.Since(started)
	p.Command = command(p.Request)
	c.client.Note(err)
	return p, err
}

// Apply does what the plan shows, or refuses when the row moved on since.
func (c *Actions) Apply(ctx context.Context, p queue.Plan) (queue.Result, error) {
	res := queue.Result{Action: p.Request.Action, Plan: p.Lines}
	op, ok := operations()[p.Request.Action]
	if !ok {
		return res, &queue.Error{Kind: queue.KindUsage, What: queue.Clean("there is no action " + string(p.Request.Action))}
	}
	if p.Refused != "" {
		res.Refused = p.Refused
		return res, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	err := pgerror.Translate(op.apply(ctx, c, p, &res))
	c.client.Note(err)
	return res, err
}

// answer is the common part of what the action functions return.
type answer struct {
	pgscan.Refusal
	Results []struct {
		ID      anyID  `json:"id"`
		Outcome string `json:"outcome"`
		Why     string `json:"why"`
		NewID   anyID  `json:"new_id"`
	} `json:"results"`
	ReadAt    *time.Time `json:"at"`
	UpdatedAt *time.Time `json:"updated_at"`
	RevertsAt *time.Time `json:"reverts_at"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// anyID is a number or a uuid, as JSON has it; null is the empty one.
type anyID string

// UnmarshalJSON implements json.Unmarshaler.
func (id *anyID) UnmarshalJSON(raw []byte) error {
	*id = anyID(strings.Trim(string(raw), `"`))
	if *id == "null" {
		*id = ""
	}
	return nil
}

// outcomes are the results per id; a prefix tells the source of those that need
// one.
func (a answer) outcomes(prefix string) []queue.Outcome {
	out := make([]queue.Outcome, len(a.Results))
	for i, r := range a.Results {
		out[i] = queue.Outcome{ID: prefix + string(r.ID), Outcome: r.Outcome, Why: queue.Clean(r.Why), NewID: string(r.NewID)}
	}
	return out
}

// record counts outcomes and adds them.
func record(res *queue.Result, all []queue.Outcome) {
	for _, o := range all {
		if o.Outcome == "skipped" || o.Outcome == "refused" || o.Outcome == "failed" {
			res.Skipped++
		} else {
			res.Done++
		}
	}
	res.Results = append(res.Results, all...)
}

// ask runs an action function.
func (c *Actions) ask(ctx context.Context, sql string, args ...any) (answer, error) {
	var a answer
	err := c.act.QueryRow(ctx, sql, args...).Scan(&a)
	return a, err
}

// one records the outcome of an action on a single thing.
func one(res *queue.Result, id, done string, a answer) {
	res.AuditID = a.AuditID
	if a.Refused {
		res.Refused = a.Reason
		res.Skipped++
		res.Results = append(res.Results, queue.Outcome{ID: id, Outcome: "refused", Why: queue.Clean(a.Reason)})
		return
	}
	res.Done++
	res.Results = append(res.Results, queue.Outcome{ID: id, Outcome: done})
}

func line(label, format string, args ...any) queue.PlanLine {
	return queue.PlanLine{Label: label, Value: queue.Clean(fmt.Sprintf(format, args...))}
}

// longest is how many days a duration that somebody types has at most: ten years.
const longest = 3650

// seconds reads a duration such as 30m, 90s, 2h, 1d.
func seconds(name, text string) (int64, error) {
	s := strings.TrimSpace(text)
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int64
		n, err = strconv.ParseInt(days, 10, 32)
		d = time.Duration(min(n, longest+1)) * 24 * time.Hour
	}
	switch {
	case err == nil && d > longest*24*time.Hour:
		return 0, &queue.Error{
			Kind: queue.KindUsage, What: queue.Clean(fmt.Sprintf("%q is longer than ten years", text)), Where: queue.Clean(name),
			Do: queue.Clean(fmt.Sprintf("use at most %dd", longest)),
		}
	case err != nil || d < time.Second:
		return 0, &queue.Error{
			Kind: queue.KindUsage, What: queue.Clean(fmt.Sprintf("%q is no duration of a second or more", text)), Where: queue.Clean(name),
			Do: queue.Clean("write it like 90s, 30m, 2h or 1d"),
		}
	}
	return int64(d.Seconds()), nil
}

// command is the headless form of a request.
func command(r queue.Request) string {
	var b strings.Builder
	targets := quoteAll(r.Targets)
	if len(r.Targets) > 20 {
		targets = quoteAll(r.Targets[:20]) + fmt.Sprintf(" … (%d ids)", len(r.Targets))
	}
	if r.Filter != "" {
		targets = "--filter " + shellQuote(r.Filter)
	}
	switch r.Action {
	case queue.ActAck:
		fmt.Fprintf(&b, "qtop ack %s --comment %s --for %s", quoteAll(r.Targets), shellQuote(r.Args["comment"]), shellQuote(r.Args["for"]))
	case queue.ActUnack:
		fmt.Fprintf(&b, "qtop unack %s --comment %s", quoteAll(r.Targets), shellQuote(r.Args["comment"]))
	case queue.ActRequeue:
		fmt.Fprintf(&b, "qtop requeue %s", targets)
	case queue.ActResolve:
		fmt.Fprintf(&b, "qtop resolve %s --resolution %s", targets, shellQuote(r.Args["resolution"]))
	case queue.ActReopen:
		fmt.Fprintf(&b, "qtop reopen %s", targets)
	case queue.ActUndoRequeue:
		fmt.Fprintf(&b, "qtop undo %s", targets)
	case queue.ActReveal:
		noun := "dlq"
		if kind, _, _ := parseid.Payload(strings.Join(r.Targets, " ")); kind == "job" {
			noun = "job"
		}
		fmt.Fprintf(&b, "qtop %s show %s --reveal", noun, targets)
	case queue.ActFlagSet:
		fmt.Fprintf(&b, "qtop flag set %s %s", quoteAll(r.Targets), shellQuote(r.Args["value"]))
		if r.Args["for"] != "" {
			fmt.Fprintf(&b, " --for %s", shellQuote(r.Args["for"]))
		}
	case queue.ActExecRegister:
		fmt.Fprintf(&b, "qtop executor register %s --owner-role %s --kind %s --cadence %s", shellQuote(r.Args["id"]), shellQuote(r.Args["owner-role"]), shellQuote(r.Args["kind"]), shellQuote(r.Args["cadence"]))
		if r.Args["domains"] != "" {
			fmt.Fprintf(&b, " --domains %s", shellQuote(r.Args["domains"]))
		}
		if r.Args["stale-after"] != "" {
			fmt.Fprintf(&b, " --stale-after %s", shellQuote(r.Args["stale-after"]))
		}
	case queue.ActExecOwner:
		fmt.Fprintf(&b, "qtop executor owner %s --owner-role %s", quoteAll(r.Targets), shellQuote(r.Args["owner-role"]))
	case queue.ActExecDeregister:
		fmt.Fprintf(&b, "qtop executor deregister %s", quoteAll(r.Targets))
	case queue.ActJobCancel:
		fmt.Fprintf(&b, "qtop job cancel %s", targets)
	case queue.ActLeaseRelease:
		fmt.Fprintf(&b, "qtop lease release %s", targets)
	case queue.ActJobSubscribe:
		fmt.Fprintf(&b, "qtop executor subscribe %s", quoteAll(r.Targets))
		for _, name := range []string{"kind", "domain", "floor", "parallel", "enabled", "notes"} {
			if v, given := r.Args[name]; v != "" || given && name == "notes" { // empty notes clear those that stand
				fmt.Fprintf(&b, " --%s=%s", name, shellQuote(v))
			}
		}
	case queue.ActBulkPlan:
		fmt.Fprintf(&b, "qtop ops plan %s", targets)
		for _, name := range []string{"what", "rate", "brake", "canary"} {
			fmt.Fprintf(&b, " --%s %s", name, shellQuote(r.Args[name]))
		}
	case queue.ActBulkRun, queue.ActBulkPause, queue.ActBulkResume, queue.ActBulkAbort, queue.ActBulkUndo:
		fmt.Fprintf(&b, "qtop ops %s %s", strings.TrimPrefix(string(r.Action), "bulk_"), quoteAll(r.Targets))
	case queue.ActBulkRate:
		fmt.Fprintf(&b, "qtop ops rate %s --rate %s", quoteAll(r.Targets), shellQuote(r.Args["rate"]))
	case queue.ActSuspend:
		fmt.Fprintf(&b, "qtop endpoint suspend %s", quoteAll(r.Targets))
		if r.Args["for"] != "" {
			fmt.Fprintf(&b, " --for %s", shellQuote(r.Args["for"]))
		}
	case queue.ActResume:
		fmt.Fprintf(&b, "qtop endpoint resume %s", quoteAll(r.Targets))
	case queue.ActNotifyRequeue:
		fmt.Fprintf(&b, "qtop notifications requeue %s", targets)
	case queue.ActRuleAdd:
		fmt.Fprintf(&b, "qtop subscription add %s", shellQuote(r.Args["recipient"]))
		for _, name := range []string{"domain", "type", "stream", "table", "payload"} {
			if r.Args[name] != "" {
				fmt.Fprintf(&b, " --%s %s", name, shellQuote(r.Args[name]))
			}
		}
	case queue.ActRuleMute, queue.ActRuleUnmute:
		fmt.Fprintf(&b, "qtop subscription %s %s", strings.TrimPrefix(string(r.Action), "event_subscription_"), quoteAll(r.Targets))
	case queue.ActTick:
		fmt.Fprintf(&b, "qtop tick %s", shellQuote(r.Args["worker"]))
	case queue.ActTickPause:
		fmt.Fprintf(&b, "qtop scheduler pause %s --for %s", quoteAll(r.Targets), shellQuote(r.Args["for"]))
	case queue.ActTickResume:
		fmt.Fprintf(&b, "qtop scheduler resume %s", quoteAll(r.Targets))
	case queue.ActCronInstall, queue.ActCronRemove:
		fmt.Fprintf(&b, "qtop %s", strings.Replace(string(r.Action), "_", " ", 1))
	case queue.ActMark:
		fmt.Fprintf(&b, "qtop mark %s", shellQuote(r.Args["label"]))
	case queue.ActRouteSet:
		fmt.Fprintf(&b, "qtop route set %s --enabled=%s", quoteAll(r.Targets), shellQuote(r.Args["enabled"]))
	case queue.ActConsumerSet:
		fmt.Fprintf(&b, "qtop consumer set %s", quoteAll(r.Targets))
		for _, name := range []string{"domain", "type", "kind", "executor", "enabled"} {
			if r.Args[name] != "" {
				fmt.Fprintf(&b, " --%s=%s", name, shellQuote(r.Args[name]))
			}
		}
	case queue.ActAdopt:
		fmt.Fprintf(&b, "qtop adopt --waiting %s --confirm %s", shellQuote(r.Args["waiting"]), quoteAll(r.Targets))
	default: // concerns a process, not the database: no verb
		return ""
	}
	if r.Reason != "" {
		fmt.Fprintf(&b, " --reason %s", shellQuote(r.Reason))
	}
	return queue.Clean(b.String()).String()
}

func quoteAll(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = shellQuote(w)
	}
	return strings.Join(q, " ")
}

// shellQuote makes one word for a POSIX shell.
func shellQuote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/@%+=", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
