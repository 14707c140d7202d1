package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/queue"
)

// The groups of verbs, in the order of --help.
const (
	groupLook = "look"
	groupAct  = "act"
	groupRun  = "run"
	groupHelp = "help"
)

func groups() []*cobra.Group {
	return []*cobra.Group{
		{ID: groupLook, Title: "Look (these change nothing):"},
		{ID: groupAct, Title: "Act (each shows what it would do, and asks):"},
		{ID: groupRun, Title: "Install, run and check:"},
		{ID: groupHelp, Title: "Settings and help:"},
	}
}

// settingsKey is the annotation of a cobra command with the parts of the
// settings (config.Parts) that have an effect on that verb and on the verbs
// below it. A verb without the annotation has defaultSettings.
const (
	settingsKey     = "settings"
	defaultSettings = "connection caller"
)

// allSettings names every part.
func allSettings() string { return strings.Join(config.Parts(), " ") }

// settingsOf returns the parts of the settings that have an effect on a verb.
func settingsOf(cmd *cobra.Command) []string {
	// The annotation of the root command is for the console, the command
	// without a verb; it is not inherited.
	for c := cmd; c != nil && (c == cmd || c.HasParent()); c = c.Parent() {
		if parts, ok := c.Annotations[settingsKey]; ok {
			return append(strings.Fields(parts), "text") // each verb prints something
		}
	}
	return append(strings.Fields(defaultSettings), "text")
}

// checkSettings refuses a flag of a setting that has no effect on the verb;
// otherwise the flag would be ignored silently.
func checkSettings(cmd *cobra.Command) error {
	acts, own := settingsOf(cmd), cmd.LocalNonPersistentFlags()
	for _, k := range config.Keys() {
		if f := cmd.Flags().Lookup(k.Flag); f != nil && f.Changed && own.Lookup(k.Flag) == nil && !slices.Contains(acts, k.Part) {
			return usage(fmt.Sprintf("--%s has no effect on %s", k.Flag, cmd.CommandPath()), "command line", "leave it out; see "+cmd.CommandPath()+" --help")
		}
	}
	return nil
}

// hideSettings hides the flags that have no effect on a verb from the help and
// the completion of that verb.
func hideSettings(root *cobra.Command, args []string) {
	if len(args) > 0 && slices.Contains([]string{cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd, "help"}, args[0]) {
		args = args[1:]
	}
	if cmd, _, err := root.Find(args); err == nil && cmd != root {
		showSettings(root, cmd)
	}
}

// formsOf returns the forms of output that a verb has, its own one first.
func formsOf(cmd *cobra.Command) []string {
	return append(strings.Fields(cmp.Or(cmd.Annotations["output"], "table")), "json")
}

// showSettings shows the flags of the settings that have an effect on a verb, and hides the others. The flag
// --output has the forms of the verb.
func showSettings(root, cmd *cobra.Command) {
	acts := settingsOf(cmd)
	for _, k := range config.Keys() {
		root.PersistentFlags().Lookup(k.Flag).Hidden = !slices.Contains(acts, k.Part)
	}
	output, forms := root.PersistentFlags().Lookup("output"), formsOf(cmd)
	last := len(forms) - 1
	output.Usage, output.DefValue = strings.Join(forms[:last], ", ")+" or "+forms[last], forms[0]
}

// nearVerb suggests the verb that a misspelt word after cmd most likely means;
// "" if no verb is similar.
func nearVerb(cmd *cobra.Command, args []string) string {
	if len(args) == 0 || strings.TrimSpace(args[0]) == "" || !cmd.HasSubCommands() {
		return ""
	}
	near := cmd.SuggestionsFor(args[0])
	if len(near) == 0 {
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		if name := queue.Nearest(args[0], names); name != "" {
			near = []string{name}
		}
	}
	if len(near) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}

// oneDash finds the name of a flag that has one dash in pflag's error about it.
var oneDash = regexp.MustCompile(`^unknown shorthand flag: '.' in -([a-z][a-z-]+)`)

// nearFlag returns the remedy for a flag that a verb does not have: a similar
// flag, and the help of the verb.
func nearFlag(cmd *cobra.Command, err error) string {
	see := "see " + cmd.CommandPath() + " --help"
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if m := oneDash.FindStringSubmatch(err.Error()); m != nil { // the habit of other tools
		name, unknown = m[1], true
	}
	if !unknown {
		return see
	}
	if cmd.Flags().Lookup("output") != nil && name == "json" { // the habit of other tools; --dsn would be the nearest
		return "did you mean --output json? " + see
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := queue.Nearest(name, names); near != "" {
		return "did you mean --" + near + "? " + see
	}
	return see
}

// verbHelp describes a verb for `qtop help --output json`.
type verbHelp struct {
	Verb    string     `json:"verb"`
	Group   string     `json:"group"`
	Usage   string     `json:"usage"`
	Help    string     `json:"help"`
	Example string     `json:"example"`
	Flags   []flagHelp `json:"flags"`
	Verbs   []string   `json:"verbs"`
}

type flagHelp struct {
	Flag    string `json:"flag"`
	Default string `json:"default"`
	Help    string `json:"help"`
}

// helpCmd prints the help of a verb, as --help does. It reads no settings,
// because broken settings may be the reason to ask for help.
func helpCmd(a *app, root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [VERB...]", Short: "Print the help of a verb, or of all", Example: "  qtop help requeue", Annotations: map[string]string{settingsKey: ""},
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			cmd, _, err := root.Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, c := range cmd.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.checkFlags(cmd) },
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				word := args[len(args)-max(len(rest), 1)]
				return usage("there is no verb "+strings.Join(append([]string{"qtop"}, args...), " "), "command line",
					cmp.Or(nearVerb(cmd, []string{word}), "see "+cmd.CommandPath()+" --help"))
			}
			if a.asJSON(helpOf(cmd)) {
				return nil
			}
			return cmd.Help()
		},
	}
}

func helpOf(cmd *cobra.Command) verbHelp {
	cmd.InitDefaultHelpFlag()
	h := verbHelp{
		Verb: cmd.CommandPath(), Group: cmd.GroupID, Usage: cmd.UseLine(), Help: cmp.Or(cmd.Long, cmd.Short), Example: strings.TrimSpace(cmd.Example),
		Flags: []flagHelp{}, Verbs: []string{},
	}
	add := func(f *pflag.Flag) {
		if !f.Hidden {
			h.Flags = append(h.Flags, flagHelp{f.Name, f.DefValue, f.Usage})
		}
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			h.Verbs = append(h.Verbs, c.Name())
		}
	}
	return h
}
