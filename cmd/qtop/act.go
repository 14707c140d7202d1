package main

// The verbs that act: the headless twins of the console's actions. Each verb
// plans its action, prints the plan, and applies the plan after the
// confirmation.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/queue"
)

type actOptions struct {
	dryRun, yes bool
	reason      string
	filters     []string
	confirm     string // --confirm: the name that the verb would otherwise ask the operator to type
	all         bool
	values      map[string]*string
}

// verb is the command of an action: the action's entry in the registry, and
// what some verbs have in addition.
type verb struct {
	entry queue.Action
	cmd   *cobra.Command
	o     actOptions
	// more copies the values of additional flags into the request, or refuses them; nil: the
	// verb has no additional flags.
	more func(r *queue.Request) error
	// run carries out the request if the verb must do more than plan and apply
	// one action; nil: doActThen does it.
	run func(ctx context.Context, r queue.Request, o actOptions) error
}

// verbOf returns the command of an action, made from its registry entry.
func verbOf(a *app, entry queue.Action) *verb {
	v := &verb{entry: entry, o: actOptions{values: map[string]*string{}}}
	v.cmd = &cobra.Command{
		Use: entry.Usage(), Example: entry.Example, Short: strings.ToUpper(entry.Help[:1]) + entry.Help[1:], Args: wanted(entry),
		RunE: func(cmd *cobra.Command, args []string) error {
			if v.o.reason != "" && !v.entry.TakesReason() {
				a.warning(queue.Error{What: queue.Clean("--reason is not recorded: the audit of " + v.entry.Words + " has no reason")})
				v.o.reason = ""
			}
			r, err := v.request(args)
			if err != nil {
				return err
			}
			r.Actor = a.settings.Actor
			if v.run != nil {
				return v.run(cmd.Context(), r, v.o)
			}
			return a.doActThen(cmd.Context(), r, v.o, "")
		},
	}
	f := v.cmd.Flags()
	f.BoolVar(&v.o.dryRun, "dry-run", false, "say what would happen, change nothing")
	f.BoolVar(&v.o.yes, "yes", false, "do not ask")
	f.StringVar(&v.o.reason, "reason", "", "why, for the audit")
	f.Lookup("reason").Hidden = !entry.TakesReason()
	if entry.Reason {
		leaveEmpty(f, "reason")
	}
	switch {
	case v.namesDatabase():
		f.StringVar(&v.o.confirm, "confirm", "", "name of the "+queue.Choose(entry.ID == queue.ActEnvironment, "guarded environment", "database")+", instead of typing it")
	case entry.Guards():
		f.StringVar(&v.o.confirm, "confirm", "", confirmHelp)
	}
	switch entry.Targets.Instead {
	case "filter":
		f.StringArrayVar(&v.o.filters, "filter", nil, "all that match, such as 'code:HTTP_503 age<2h'"+queue.Choose(entry.Targets.List == "dlq", "; given again: also those that match it", ""))
	case "all":
		f.BoolVar(&v.o.all, "all", false, "all that failed")
	}
	for _, arg := range entry.Args {
		if !arg.Positional {
			v.flag(arg.Name, arg.Default, arg.Hint())
			if arg.Required || arg.Clears || arg.Empty != "" {
				leaveEmpty(f, arg.Name)
			}
			if arg.Kind == queue.ArgSwitch && arg.Default == "false" {
				v.cmd.Flags().Lookup(arg.Name).NoOptDefVal = "true" // the flag alone means true
			}
		}
	}
	v.completeArgs(a)
	return v
}

// confirmHelp is the help of --confirm, for verbs that need it in guarded
// databases only.
const confirmHelp = "in a guarded database: the name of its environment, else of the database, instead of typing it"

// namesDatabase reports whether the verb must be confirmed with the name of the
// database or of its environment; the plan contains that name.
func (v *verb) namesDatabase() bool {
	return v.entry.Danger == queue.DangerDatabase || v.entry.ID == queue.ActEnvironment
}

func (v *verb) flag(name, value, help string) {
	v.o.values[name] = v.cmd.Flags().String(name, value, help)
}

// wanted returns the function that checks how many words follow the verb.
func wanted(entry queue.Action) cobra.PositionalArgs {
	n := queue.Choose(entry.Free().Name != "", 1, 0)
	switch t := entry.Targets; {
	case t.Name == "" || entry.Danger == queue.DangerDatabase:
	case t.Instead != "":
		return cobra.ArbitraryArgs
	case t.Many:
		return cobra.MinimumNArgs(1)
	default:
		n++
	}
	if entry.Free().Max > 0 { // a text may be several words
		return cobra.MinimumNArgs(n)
	}
	return cobra.ExactArgs(n)
}

// request returns the request that the command line describes, or an error if
// the words, flags and values do not fit the action.
func (v *verb) request(args []string) (queue.Request, error) {
	r := queue.Request{Action: v.entry.ID, Args: map[string]string{}, Reason: v.o.reason}
	r.Select(v.o.filters)
	for name, value := range v.o.values {
		if v.cmd.Flags().Changed(name) { // an omitted flag keeps the current value, or has the registry's default
			r.Args[name] = *value
		}
	}
	if v.namesDatabase() && v.o.confirm != "" {
		r.Args["confirm"] = v.o.confirm
	}
	r.Targets = args
	if free := v.entry.Free().Name; free != "" {
		n := queue.Choose(v.entry.Targets.Name != "", 1, 0)
		r.Targets, r.Args[free] = args[:n], strings.Join(args[n:], " ")
	}
	if v.more != nil {
		if err := v.more(&r); err != nil {
			return r, err
		}
	}
	see := "see qtop " + v.entry.Targets.List
	switch {
	case v.entry.Targets.Instead == "filter" && (len(r.Targets) > 0) == (r.Filter != ""):
		return r, usage(queue.Choose(r.Filter == "", "neither ids nor --filter are given", "both ids and --filter are given"), "command line", "give one of them; "+see)
	case v.entry.Targets.Instead == "all" && (len(r.Targets) > 0) == v.o.all:
		return r, usage(queue.Choose(v.o.all, "both ids and --all are given", "neither ids nor --all are given"), "command line", "give one of them; "+see)
	}
	return r, v.entry.Check(r.Args)
}

// more adds, for some actions, what their registry entries cannot declare:
// further flags, or another way to run.
var more = map[queue.ActionID]func(*app, *verb){
	queue.ActRequeue: requeueAtRate, queue.ActJobCancel: cancelLane,
	queue.ActWebhookVerify: func(_ *app, v *verb) {
		v.cmd.Annotations = map[string]string{settingsKey: defaultSettings + " delivery"}
	},
	queue.ActAdopt: func(_ *app, v *verb) { v.cmd.Long = adoptLong },
}

// addActions adds the verb of each action to root. The words of the action name
// the parent commands; addActions creates those that do not exist yet.
func addActions(a *app, root *cobra.Command) {
	for _, entry := range actions.Registry() {
		if entry.Twin != "" {
			continue // this action is part of another verb, such as --reveal of dlq show
		}
		v := verbOf(a, entry)
		if add := more[entry.ID]; add != nil {
			add(a, v)
		}
		group := root
		words := strings.Fields(entry.Words)
		for _, word := range words[:len(words)-1] {
			group = groupOf(group, word, entry.Group)
		}
		if group == root {
			v.cmd.GroupID = groupAct
		}
		group.AddCommand(v.cmd)
	}
}

// groupOf returns the command of this name below parent. If there is none, it
// creates one.
func groupOf(parent *cobra.Command, name, short string) *cobra.Command {
	for _, c := range parent.Commands() {
		if c.Name() == name {
			return c
		}
	}
	c := &cobra.Command{Use: name, Short: short}
	if !parent.HasParent() {
		c.GroupID = groupAct
	}
	parent.AddCommand(c)
	return c
}

const adoptLong = "A copy of a database (a restored dump, a clone of a template) holds the waiting work of its original. Until it is\n" +
	"adopted, hosts refuse to start in it and nothing is claimed, routed or sent. --waiting decides what happens to that work:\n\n" +
	"  keep     all of it goes on here\n" +
	"  suspend  every endpoint is suspended, running bulk operations are paused, and the flags\n" +
	"           queue.job_substrate.enabled and iu_core.routes_master_enabled are switched off\n" +
	"  cancel   every job is cancelled for good, also those that hosts of the original hold; endpoints,\n" +
	"           bulk operations and iu_core.routes_master_enabled as for suspend\n\n" +
	"The name of the database is typed, or given as --confirm. After pg_upgrade or a move by logical replication run it\n" +
	"once with --waiting keep. Failover, restart and rename need nothing. See docs/upgrading.md, Copies of a database."

// doActThen plans the action of r, asks for confirmation and applies the plan.
// If then is not empty, it afterwards applies the action then to each id that
// the first action created.
func (a *app) doActThen(ctx context.Context, r queue.Request, o actOptions, then queue.ActionID) error {
	client, err := a.client(ctx, 0)
	if err != nil {
		return err
	}
	defer client.Close()
	a.unsure.Store(nothingChanged)
	do := actions.New(client).Probing(a.probe)
	if o.dryRun && r.Reason == "" {
		r.Reason = "dry run"
	}
	r.Unseen = !o.dryRun && (o.yes || a.headless())
	plan, err := do.Plan(ctx, r)
	if err != nil {
		return err
	}
	res := queue.Result{Action: plan.Request.Action, DryRun: o.dryRun, Plan: plan.Lines, Results: plan.Results, Refused: plan.Refused, Skipped: plan.Skipped}
	if plan.Refused == "" && !o.dryRun {
		if err := a.confirm(ctx, client, plan, o); err != nil {
			return err
		}
		a.unsure.Store(unsureAction)
		if res, err = do.Apply(ctx, plan); err != nil {
			if len(res.Results) > 0 { // what was done before the error stays done
				_ = a.outcome(res, plan)
			}
			return known(err, res.Intact)
		}
		takeRefused(&res, plan)
		for i := range res.Results {
			if then == "" || res.Refused != "" {
				break
			}
			if res.Results[i].NewID == "" { // an id that was skipped
				continue
			}
			var done queue.Result
			why := "not started"
			next, err := do.Plan(ctx, queue.Request{Action: then, Targets: []string{res.Results[i].NewID}, Actor: r.Actor})
			if err == nil {
				if done, err = do.Apply(ctx, next); pgerror.MayHaveCommitted(err) {
					why = "qtop does not know whether the operation was started: see qtop ops"
				}
			}
			if err != nil { // what was made and started before the error stays
				res.Results[i].Why = queue.Clean(why)
				_ = a.outcome(res, plan)
				return err
			}
			res.AuditID = cmp.Or(done.AuditID, res.AuditID)
			if done.Refused != "" { // what the first action made stays
				res.Results[i].Why = queue.Clean("not started: " + done.Refused)
				res.Skipped++
				break
			}
			if len(done.Results) == 1 {
				res.Results[i].Outcome = done.Results[0].Outcome
			}
		}
	}
	return a.outcome(res, plan)
}

// known adds to the error of an action whose connection failed what that leaves unknown.
func known(err error, intact bool) error {
	var said *queue.Error
	if queue.KindOf(err) != queue.KindUnavailable || !errors.As(err, &said) {
		return err
	}
	e := *said
	e.What = queue.Clean(e.What.String() + "; " + queue.Choose(intact, nothingChanged, unsureAction))
	return e.Because(err)
}

// takeRefused adds to a result the targets that its plan refused, and to which the action was therefore not applied.
func takeRefused(res *queue.Result, plan queue.Plan) {
	for _, o := range plan.Results {
		if o.Outcome == "refused" && !slices.ContainsFunc(res.Results, func(done queue.Outcome) bool { return done.ID == o.ID }) {
			res.Results = append(res.Results, o)
			res.Skipped++
		}
	}
}

func (a *app) planLines(p queue.Plan) {
	for _, l := range p.Lines {
		fmt.Fprintf(a.errs, "%-14s %s\n", queue.Clean(l.Label), l.Value)
	}
}

// outcome prints the result of an action. If any id was refused or skipped,
// the exit code becomes 1.
func (a *app) outcome(res queue.Result, p queue.Plan) error {
	refused, where := queue.Clean(res.Refused), strings.Join(p.Request.Targets, " ")
	if a.output == "json" {
		a.encode(a.out, map[string]any{
			"action": res.Action, "dry_run": res.DryRun, "plan": list(res.Plan), "results": list(res.Results), "audit_id": res.AuditID,
			"refused": refused,
		})
	} else {
		rows := res.Results
		switch {
		case !refused.Empty() && len(rows) == 1 && rows[0].Outcome != "failed": // the error says what the plan and the row would say
			where = rows[0].ID
			if why := rows[0].Why; !why.Empty() && strings.HasSuffix(refused.String(), why.String()) {
				refused = why
			}
			rows = nil
		case res.DryRun, !refused.Empty() && len(rows) == 0:
			a.planLines(p)
		}
		for _, r := range rows {
			line := queue.Clean(r.ID).String() + " " + r.Outcome
			if r.NewID != "" {
				line += " → " + r.NewID
			}
			if !r.Why.Empty() {
				line += ": " + r.Why.String()
			}
			fmt.Fprintln(a.out, line)
		}
		if res.AuditID != 0 {
			fmt.Fprintf(a.out, "audit %d\n", res.AuditID)
		}
		for _, r := range res.Results {
			if res.Action == queue.ActBulkPlan && r.Outcome == "planned" && r.NewID != "" {
				a.printf("operation %s is planned, %s; start it: qtop ops run %s\n", r.NewID, queue.NotYet(p.Request), r.NewID)
			}
		}
	}
	if !refused.Empty() {
		a.printError(queue.Error{What: queue.Clean("refused: " + refused.String()), Where: queue.Clean(where).Cut(queue.LineMost)})
	}
	if !refused.Empty() || res.Skipped > 0 {
		return &exitError{1}
	}
	return nil
}
