package main

// This file is the verbs that act: the headless twins of the console's actions.
// Each plans, shows the plan, and applies it when told to.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
)

type actOptions struct {
	dryRun, yes    bool
	reason, filter string
	values         map[string]*string
}

// actVerb is one headless form of an action.
type actVerb struct {
	use    string
	action queue.ActionID
	args   cobra.PositionalArgs
	filter bool
	list   string   // the verb that shows what may be named; "" = dlq
	skip   []string // registry arguments that are positional here
	long   string   // help beyond the registry's line
	// into puts the positional arguments into the request.
	into func(r *queue.Request, args []string)
}

func targets(r *queue.Request, args []string) { r.Targets = args }

func (a *app) actCmds() []*cobra.Command {
	cmds := []*cobra.Command{
		a.act(actVerb{use: "ack EXECUTOR|ALERT...", action: queue.ActAck, args: cobra.MinimumNArgs(1), into: targets}),
		a.act(actVerb{use: "unack EXECUTOR|ALERT...", action: queue.ActUnack, args: cobra.MinimumNArgs(1), into: targets}),
		a.act(actVerb{use: "resolve [ID...]", action: queue.ActResolve, args: cobra.ArbitraryArgs, filter: true, into: targets}),
		a.act(actVerb{use: "reopen ID...", action: queue.ActReopen, args: cobra.MinimumNArgs(1), into: targets}),
		a.act(actVerb{use: "undo ID...", action: queue.ActUndoRequeue, args: cobra.MinimumNArgs(1), into: targets}),
		a.act(actVerb{
			use: "tick WORKER", action: queue.ActTick, args: cobra.ExactArgs(1), skip: []string{"worker"},
			into: func(r *queue.Request, args []string) { r.Args["worker"] = args[0] },
		}),
		a.act(actVerb{
			use: "adopt", action: queue.ActAdopt, args: cobra.NoArgs, into: func(*queue.Request, []string) {},
			long: "A copy of a database (a restored dump, a clone of a template) holds the waiting work of its original. Until it is\n" +
				"adopted, hosts refuse to start in it and nothing is claimed, routed or sent. --waiting says what becomes of that work:\n\n" +
				"  keep     all of it goes on here\n" +
				"  suspend  every endpoint is suspended, running bulk operations are paused, and the flags\n" +
				"           queue.job_substrate.enabled and iu_core.routes_master_enabled are switched off\n" +
				"  cancel   every job is cancelled for good, also those that hosts of the original hold; endpoints,\n" +
				"           bulk operations and iu_core.routes_master_enabled as for suspend\n\n" +
				"The name of the database is typed, or given as --confirm. After pg_upgrade or a move by logical replication run it\n" +
				"once with --waiting keep. Failover, restart and rename need nothing. See docs/upgrading.md, Copies of a database.",
		}),
		a.act(actVerb{
			use: "mark LABEL", action: queue.ActMark, args: cobra.MinimumNArgs(1), skip: []string{"label"},
			into: func(r *queue.Request, args []string) { r.Args["label"] = strings.Join(args, " ") },
		}),
	}
	flag := &cobra.Command{Use: "flag", Short: "Change a flag"}
	flag.AddCommand(a.act(actVerb{
		use: "set KEY VALUE", action: queue.ActFlagSet, args: cobra.ExactArgs(2), skip: []string{"value"},
		into: func(r *queue.Request, args []string) { r.Targets, r.Args["value"] = args[:1], args[1] },
	}))
	executor := &cobra.Command{Use: "executor", Short: "Register, deregister or beat an executor; say what it may claim"}
	executor.AddCommand(
		a.act(actVerb{
			use: "register ID", action: queue.ActExecRegister, args: cobra.ExactArgs(1), skip: []string{"id"},
			into: func(r *queue.Request, args []string) { r.Args["id"] = args[0] },
		}),
		a.act(actVerb{use: "owner ID", action: queue.ActExecOwner, args: cobra.ExactArgs(1), into: targets}),
		a.act(actVerb{use: "deregister ID", action: queue.ActExecDeregister, args: cobra.ExactArgs(1), into: targets}),
		a.act(actVerb{use: "subscribe ID", action: queue.ActJobSubscribe, args: cobra.ExactArgs(1), into: targets}),
		a.act(actVerb{use: "disable RULE", action: queue.ActJobRuleOff, args: cobra.ExactArgs(1), into: targets}),
		a.act(actVerb{use: "enable RULE", action: queue.ActJobRuleOn, args: cobra.ExactArgs(1), into: targets}),
		a.viewCmd(view{use: "subscriptions [ID]", short: "What executors may claim", show: showExecutorRules}, &viewOptions{}),
		a.beatCmd(),
	)
	endpoint := &cobra.Command{Use: "endpoint", Short: "Suspend or resume a webhook subscription"}
	endpoint.AddCommand(
		a.act(actVerb{use: "suspend SUBSCRIPTION...", action: queue.ActSuspend, args: cobra.MinimumNArgs(1), list: "webhooks", into: targets}),
		a.act(actVerb{use: "resume SUBSCRIPTION...", action: queue.ActResume, args: cobra.MinimumNArgs(1), list: "webhooks", into: targets}),
	)
	return append(cmds, flag, executor, endpoint)
}

func (a *app) act(v actVerb) *cobra.Command {
	entry, _ := queue.ActionByID(v.action)
	o := actOptions{values: map[string]*string{}}
	cmd := &cobra.Command{
		Use: v.use, Short: strings.ToUpper(entry.Help[:1]) + entry.Help[1:], Long: v.long, Args: v.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			r := queue.Request{Action: v.action, Args: map[string]string{}, Filter: o.filter, Reason: o.reason, Actor: a.settings.Actor}
			for name, value := range o.values {
				if cmd.Flags().Changed(name) { // what is left out stays as it stands, or has the registry's default
					r.Args[name] = *value
				}
			}
			v.into(&r, args)
			if v.filter && (len(r.Targets) > 0) == (r.Filter != "") {
				return usage("name ids, or give --filter, one of the two", "command line", "see qtop "+orWord(v.list, "dlq"))
			}
			return a.doAct(cmd.Context(), r, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would happen, change nothing")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	f.StringVar(&o.reason, "reason", "", "why, for the audit")
	if entry.Danger == queue.DangerDatabase {
		o.values["confirm"] = new(string)
		f.StringVar(o.values["confirm"], "confirm", "", "name of the database, instead of typing it")
	}
	if v.filter {
		f.StringVar(&o.filter, "filter", "", "all that match, such as 'code:HTTP_503 age<2h'")
	}
	for _, arg := range entry.Args {
		skip := false
		for _, s := range v.skip {
			skip = skip || s == arg.Name
		}
		if !skip {
			value := new(string)
			o.values[arg.Name] = value
			f.StringVar(value, arg.Name, arg.Default, arg.Hint())
		}
	}
	return cmd
}

func (a *app) doAct(ctx context.Context, r queue.Request, o actOptions) error {
	return a.doActThen(ctx, r, o, "")
}

// doActThen does an action, and then another one on what it made.
func (a *app) doActThen(ctx context.Context, r queue.Request, o actOptions, then queue.ActionID) error {
	client, err := a.client(ctx, 0)
	if err != nil {
		return err
	}
	defer client.Close()
	do := actions.New(client)
	if o.dryRun && r.Reason == "" {
		r.Reason = "dry run"
	}
	plan, err := do.Plan(ctx, r)
	if err != nil {
		return err
	}
	res := queue.Result{Action: plan.Request.Action, DryRun: o.dryRun, Plan: plan.Lines, Results: plan.Results, Refused: plan.Refused, Skipped: plan.Skipped}
	switch {
	case plan.Refused != "", o.dryRun:
	default:
		if err := a.confirm(ctx, plan, o); err != nil {
			return err
		}
		if res, err = do.Apply(ctx, plan); err != nil {
			if len(res.Results) > 0 { // what was done before it stays done
				_ = a.outcome(res, plan)
			}
			return err
		}
		for i := range res.Results {
			if then == "" || res.Refused != "" {
				break
			}
			next, err := do.Plan(ctx, queue.Request{Action: then, Targets: []string{res.Results[i].NewID}, Actor: r.Actor})
			if err != nil {
				return err
			}
			done, err := do.Apply(ctx, next)
			if err != nil {
				return err
			}
			res.AuditID, res.Refused = done.AuditID, done.Refused
			if len(done.Results) == 1 {
				res.Results[i].Outcome = done.Results[0].Outcome
			}
		}
	}
	return a.outcome(res, plan)
}

// confirm asks unless --yes; where nobody can answer it refuses.
func (a *app) confirm(ctx context.Context, p queue.Plan, o actOptions) error {
	switch {
	case p.Confirm != "" && p.Request.Args["confirm"] == "" && (o.yes || !terminal(a.in) || a.output == "json"):
		return usage("the name of the database is needed: --yes is not enough for all of it", "command line", "say --confirm NAME, or --dry-run to see the plan")
	case o.yes, p.Confirm != "" && p.Request.Args["confirm"] != "": // a wrong name was refused by the plan
		return nil
	}
	if !terminal(a.in) || a.output == "json" {
		return usage("nobody is here to confirm", "command line", "say --yes, or --dry-run to see the plan")
	}
	a.planLines(p)
	entry, _ := queue.ActionByID(p.Request.Action)
	ask, want := entry.Verb, "yes"
	if entry.Danger == queue.DangerMany { // a count beside one target would read as its number
		ask = fmt.Sprintf("%s %d", ask, p.Count)
	}
	if p.Count > 1 {
		want = fmt.Sprint(p.Count)
	}
	if p.Confirm != "" {
		want = p.Confirm
	}
	fmt.Fprintf(a.errs, "%s? Type %s to do it: ", ask, want)
	text, err := awaitInput(ctx, func() (string, error) { return bufio.NewReader(a.in).ReadString('\n') })
	if errors.Is(err, errInterrupted) {
		return a.interrupted()
	}
	if err != nil || strings.TrimSpace(text) != want {
		return &queue.Error{Kind: queue.KindFailed, What: queue.Clean("not confirmed: nothing was changed")}
	}
	return nil
}

func (a *app) planLines(p queue.Plan) {
	for _, l := range p.Lines {
		fmt.Fprintf(a.errs, "%-14s %s\n", queue.Clean(l.Label), l.Value)
	}
}

// outcome prints the result; any refused or skipped id makes the exit code 1.
func (a *app) outcome(res queue.Result, p queue.Plan) error {
	if a.output == "json" {
		if res.Plan == nil {
			res.Plan = []queue.PlanLine{}
		}
		if res.Results == nil {
			res.Results = []queue.Outcome{}
		}
		a.encode(a.out, map[string]any{
			"action": res.Action, "dry_run": res.DryRun, "plan": res.Plan, "results": res.Results, "audit_id": res.AuditID,
			"refused": queue.Clean(res.Refused),
		})
	} else {
		if res.DryRun || res.Refused != "" {
			a.planLines(p)
		}
		for _, r := range res.Results {
			line := queue.Clean(r.ID).String() + " " + r.Outcome
			if r.NewID != "" {
				line += " → " + r.NewID
			}
			if !r.Why.Empty() {
				line += ": " + r.Why.String()
			}
			fmt.Fprintln(a.out, line)
		}
		if res.Refused != "" {
			fmt.Fprintln(a.errs, "qtop: refused: "+queue.Clean(res.Refused).String())
		}
		if res.AuditID != 0 {
			fmt.Fprintf(a.out, "audit %d\n", res.AuditID)
		}
	}
	if res.Refused != "" || res.Skipped > 0 {
		return &exitError{1}
	}
	return nil
}

func (a *app) beatCmd() *cobra.Command {
	var payload string
	cmd := &cobra.Command{
		Use: "beat ID", Short: "Write one beat of a registered executor", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client(cmd.Context(), 0)
			if err != nil {
				return err
			}
			defer client.Close()
			at, refused, err := client.Beat(cmd.Context(), args[0], payload)
			if err != nil {
				return err
			}
			return a.outcome(queue.Result{
				Action: "executor_beat", Refused: refused,
				Results: []queue.Outcome{{ID: args[0], Outcome: beatWord(refused), Why: queue.Clean(at)}},
			}, queue.Plan{})
		},
	}
	cmd.Flags().StringVar(&payload, "payload", "{}", "JSON: state, done_total, in_flight, last_work_at")
	return cmd
}

func beatWord(refused string) string {
	if refused != "" {
		return "refused"
	}
	return "beaten"
}
