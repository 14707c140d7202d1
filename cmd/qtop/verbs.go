package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/queue"
)

// The command line: the flags that every verb takes, and the list of the verbs.
// Each verb is declared in the file about its subject.

// verbs returns the verbs that are not actions, each in its help group.
// addActions adds the verbs of actions, in groupAct.
func verbs(a *app) []*cobra.Command {
	var cmds []*cobra.Command
	for _, g := range []struct {
		group string
		verbs []func(*app) *cobra.Command
	}{
		{groupLook, []func(*app) *cobra.Command{
			statusCmd, deadLettersCmd, queuesCmd, webhooksCmd, whyCmd, notificationsCmd, schedulerCmd, subscriptionsCmd, opsCmd, reportCmd, exportCmd,
		}},
		{groupAct, []func(*app) *cobra.Command{executorCmd, jobCmd, leaseCmd, routeCmd, consumerCmd, eventTypeCmd}},
		{groupRun, []func(*app) *cobra.Command{demoCmd, migrateCmd, workerCmd, doctorCmd}},
		{groupHelp, []func(*app) *cobra.Command{configCmd, profileCmd, versionCmd, keysCmd, manCmd}},
	} {
		made := queue.Choose(g.group == groupLook, lists(a), nil)
		for _, verb := range g.verbs {
			made = append(made, verb(a))
		}
		for _, cmd := range made {
			cmd.GroupID = g.group
		}
		cmds = append(cmds, made...)
	}
	return cmds
}

func commandLine(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "qtop",
		Short: "Operations console for queues that live in PostgreSQL",
		Long: "qtop shows silent workers, the longest waits with their reasons, and dead letters, and acts on them.\n" +
			"Without a verb it opens the console. Every action of the console has a verb here.",
		Example: "qtop --pane dlq --filter 'code:HTTP_503 age<2h'", Annotations: map[string]string{settingsKey: allSettings()},
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.console(cmd.Context()) },
	}
	root.Version = release
	root.SetVersionTemplate(versionLine() + "\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if jsonWanted.MatchString(strings.Join(a.args, "\n")) {
			a.output = "json" // cobra stops at a wrong flag, and --output may follow it
		}
		if n := negative.FindStringSubmatch(err.Error()); n != nil {
			return usage("there is no flag "+n[1], "command line", "no number here is below 0; put an argument that begins with a dash after --")
		}
		if v := unparsed.FindStringSubmatch(err.Error()); v != nil {
			do := queue.Choose(v[3] == "Bool", "use true or false", queue.Choose(v[3] == "Float", "use a number", "use a whole number"))
			return usage(v[2]+" cannot be "+v[1], "command line", queue.Choose(v[4] == "value out of range", "use a smaller number", do))
		}
		return usage(err.Error(), "command line", nearFlag(cmd, err))
	})
	root.AddGroup(groups()...)
	root.SetHelpCommand(helpCmd(a, root))
	root.SetHelpCommandGroupID(groupHelp)
	root.SetCompletionCommandGroupID(groupHelp)
	pf := root.PersistentFlags()
	pf.SortFlags = false
	for _, k := range config.Keys() {
		if k.Type == "bool" {
			pf.Bool(k.Flag, k.Default == "true", k.Help)
		} else {
			pf.String(k.Flag, k.Default, k.Help)
		}
	}
	pf.StringVarP(&a.output, "output", "o", "table", "table or json")
	_ = root.RegisterFlagCompletionFunc("output", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return formsOf(cmd), cobra.ShellCompDirectiveNoFileComp
	})
	root.Flags().StringVar(&a.pane, "pane", "", "pane to open: "+strings.Join(paneNames(), ", "))
	_ = root.RegisterFlagCompletionFunc("pane", cobra.FixedCompletions(paneNames(), cobra.ShellCompDirectiveNoFileComp))
	root.Flags().StringVar(&a.filter, "filter", "", "filter to open it with")
	root.Flags().BoolVar(&a.access, "accessible", false, "plain lines for screen readers, no full-screen display")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case completes(cmd): // completion reads the settings itself and passes over their mistakes
			return nil
		case cmd.HasParent() && cmd.Parent().Name() == "completion": // the script needs none
			return a.checkFlags(cmd)
		}
		if cmd != root && cmd.Name() != "worker" && cmd.Name() != "demo" {
			a.finished = a.endVerbBy(cmd.Context())
		}
		err := a.load(cmd)
		a.warn()
		return err
	}
	root.AddCommand(verbs(a)...)
	addActions(a, root)
	if a.out != nil { // cobra's completion command keeps the writer that is set when it is added
		root.SetOut(a.out)
	}
	root.InitDefaultCompletionCmd("") // added now, so that the checks below cover it
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Annotations = map[string]string{settingsKey: ""}
			for _, shell := range c.Commands() {
				shell.Example = shell.CommandPath()
			}
		}
	}
	explain(root)
	a.completeSettings(root)
	return root
}

// completes reports whether a command is what the completion of the shell calls.
func completes(cmd *cobra.Command) bool {
	return slices.Contains([]string{cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, cmd.Name())
}

// explain improves three things that cobra leaves to the verbs. Arguments that
// do not fit give an error that says what happened, where, and what to do.
// Examples are indented. A verb that only groups others refuses an unknown
// subcommand and, with --output json, a missing one, where cobra would print
// the help and exit with 0.
func explain(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.DisableFlagsInUseLine = cobra.NoArgs, true
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			if o := cmd.Flag("output"); o == nil || o.Value.String() != "json" {
				return cmd.Help()
			}
			var names []string
			for _, c := range cmd.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name())
				}
			}
			return usage("an argument is missing after "+cmd.CommandPath(), "command line", "write "+cmd.CommandPath()+" "+strings.Join(names, "|"))
		}
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.Example = queue.Choose(cmd.Example == "", "", "  "+cmd.Example)
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if near := nearVerb(cmd, args); err == nil && near != "" && cmd.HasParent() {
				return usage(fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath()), "command line", near)
			}
			switch {
			case err == nil:
				return nil
			case strings.HasPrefix(err.Error(), "unknown command"):
				return usage(err.Error(), "command line", cmp.Or(nearVerb(cmd, args), "see "+cmd.CommandPath()+" --help"))
			case len(args) == 0:
				return usage("an argument is missing after "+cmd.CommandPath(), "command line", "write "+cmd.UseLine())
			default:
				return usage(fmt.Sprintf("%s does not take %s", cmd.CommandPath(), queue.Plural(len(args), "argument", "arguments")), "command line",
					cmp.Or(nearVerb(cmd, args), "write "+cmd.UseLine()))
			}
		}
	}
	for _, c := range cmd.Commands() {
		explain(c)
	}
}

// jsonWanted finds --output json in a command line that has one word per line.
var jsonWanted = regexp.MustCompile(`(?m)^(-o|--output)[\n=]?json`)

// negative finds the number in pflag's error about an argument that begins with
// a dash, such as -5.
var negative = regexp.MustCompile(`^unknown shorthand flag: '[0-9.]' in (-[0-9.]+)$`)

// unparsed finds value, flag and type in pflag's error about a value that Go cannot parse.
var unparsed = regexp.MustCompile(`^invalid argument (".*") for "(?:-\w, )?(--[\w-]+)" flag: strconv\.Parse(\w+): .*: (invalid syntax|value out of range)$`)
