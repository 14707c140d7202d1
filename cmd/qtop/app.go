package main

// This file holds what the verbs share: settings from flags, environment and
// file, the client, and the way out.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

type app struct {
	in        io.Reader
	out, errs io.Writer
	output    string // table, json; what else a verb writes, it says itself
	pane      string
	filter    string
	access    bool
	settings  config.Settings
	files     []fileFinding // that others may change or read
}

// exitError carries an exit code that says more than the error: health is
// critical, or an action that was refused.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit %d", e.code) }

const exitCritical = 3

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "qtop",
		Short: "Operations console for queues that live in PostgreSQL",
		Long: "qtop shows which worker went silent, what waits longest and why, and what died; and acts on it.\n" +
			"Without a verb it opens the console. Every action of the console has a verb here.",
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.console(cmd.Context()) },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if n := negative.FindStringSubmatch(err.Error()); n != nil {
			return usage(n[1]+" is taken for a flag", "command line", "no number here is below 0; what begins with a dash stands behind --")
		}
		return usage(err.Error(), "command line", "see --help")
	})
	root.SetHelpCommand(&cobra.Command{Hidden: true, Use: "no-help"})
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
	root.Flags().StringVar(&a.pane, "pane", "", "pane to open: "+strings.Join(paneNames(), ", "))
	root.Flags().StringVar(&a.filter, "filter", "", "filter to open it with")
	root.Flags().BoolVar(&a.access, "accessible", false, "plain lines for screen readers, no full-screen display")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.load(cmd) }
	root.AddCommand(a.demoCmd(), a.migrateCmd(), a.workerCmd(), a.doctorCmd(), a.configCmd(), a.versionCmd(), a.keysCmd(), a.reportCmd(), a.exportCmd())
	root.AddCommand(a.viewCmds()...)
	root.AddCommand(a.actCmds()...)
	explain(root)
	return root
}

// explain gives words that a verb does not take the three parts of an error, and
// makes a verb that only holds others refuse one it does not have: cobra would
// print its help and call that done.
func explain(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.DisableFlagsInUseLine = cobra.NoArgs, true
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	cmd.SuggestionsMinimumDistance = 2
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			switch err := check(cmd, args); {
			case err == nil:
				return nil
			case strings.HasPrefix(err.Error(), "unknown command"):
				do := "see " + cmd.CommandPath() + " --help"
				if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
					do = "did you mean " + strings.Join(near, " or ") + "?"
				}
				return usage(err.Error(), "command line", do)
			case len(args) == 0:
				return usage("something is missing after "+cmd.CommandPath(), "command line", "write "+cmd.UseLine())
			default:
				return usage(fmt.Sprintf("%d words after %s do not fit", len(args), cmd.CommandPath()), "command line", "write "+cmd.UseLine())
			}
		}
	}
	for _, c := range cmd.Commands() {
		explain(c)
	}
}

// load reads the settings; every problem of theirs is told at once.
func (a *app) load(cmd *cobra.Command) error {
	forms := append(strings.Fields(orWord(cmd.Annotations["output"], "table")), "json")
	if !cmd.Flags().Changed("output") {
		a.output = forms[0]
	}
	if !slices.Contains(forms, a.output) {
		bad := a.output
		a.output = forms[0]
		do := "use " + strings.Join(forms, " or ")
		if strings.Contains(cmd.Use, "FILE") {
			do += "; write " + cmd.UseLine()
		}
		return usage(fmt.Sprintf("--output is %q", bad), "command line", do)
	}
	flags := map[string]string{}
	known := map[string]bool{}
	for _, k := range config.Keys() {
		known[k.Flag] = true
	}
	own := cmd.LocalNonPersistentFlags() // a verb's flag of the same name is no setting
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if known[f.Name] && own.Lookup(f.Name) == nil {
			flags[f.Name] = f.Value.String()
		}
	})
	if err := a.read(config.System(flags)); err != nil && cmd.Annotations["config"] != "shown" {
		return err
	}
	return nil
}

// read takes the settings from their sources; what masks secrets is told of all
// that is read.
func (a *app) read(src config.Sources) (err error) {
	src.Judge, src.Seen = secrecy.CheckDSN, secrecy.LearnText
	a.settings, err = config.Load(src)
	if err != nil {
		return err
	}
	a.files = guarded(src, a.settings)
	return refused(a.files)
}

// client opens the client of the settings.
func (a *app) client(ctx context.Context, workConns int32) (*pgclient.Client, error) {
	return pgclient.Open(ctx, pgclient.Options{
		DSN: a.settings.DSN, ListenDSN: a.settings.ListenDSN, Pooler: a.settings.Pooler, Actor: a.settings.Actor,
		ReadOnly: a.settings.ReadOnly, WorkConns: workConns, MaxAge: sharedAge(workConns > 0), ExpectServer: a.settings.ExpectServer,
	})
}

// sharedAge is how old a shared picture may be: a console refreshes many times
// and shares, a verb that prints once shows what is.
func sharedAge(console bool) time.Duration {
	if console {
		return 200 * time.Millisecond
	}
	return 0
}

func usage(what, where, do string) error {
	return &queue.Error{Kind: queue.KindUsage, What: queue.Clean(what), Where: queue.Clean(where), Do: queue.Clean(do)}
}

// exit prints the error, one clear line each, and gives the exit code.
func (a *app) exit(err error) int {
	var ex *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ex):
		return ex.code
	}
	if ps, ok := config.AsProblems(err); ok {
		for _, p := range ps {
			a.printError(queue.Error{What: queue.Clean(p.What), Where: queue.Clean(p.Where), Do: queue.Clean(p.Do)})
		}
		return int(queue.KindConfig)
	}
	var q *queue.Error
	if errors.As(err, &q) {
		a.printError(*q)
		return int(q.Kind)
	}
	msg := err.Error()
	code := 1
	if strings.HasPrefix(msg, "unknown command") || strings.Contains(msg, "arg(s)") {
		code = int(queue.KindUsage)
	}
	a.printError(queue.Error{What: queue.Clean(msg)})
	return code
}

func (a *app) printError(e queue.Error) {
	if strings.HasPrefix(a.output, "json") {
		a.encode(a.errs, map[string]any{"error": map[string]queue.Text{"what": e.What, "where": e.Where, "do": e.Do}})
		return
	}
	fmt.Fprintln(a.errs, "qtop: "+e.Error())
}

// version is the build's own account of itself.
func version() string {
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := bi.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range bi.Settings {
		if s.Key == "vcs.revision" {
			return "devel-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}

// terminal tells whether the file is a terminal that can show a screen.
func terminal(f any) bool {
	if w, ok := f.(secrecy.Writer); ok {
		f = w.Unwrap()
	}
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	st, err := file.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

func asQueueError(err error) (*queue.Error, bool) {
	var q *queue.Error
	ok := errors.As(err, &q)
	return q, ok
}

// negative finds a number in what pflag says of an argument that begins with a dash.
var negative = regexp.MustCompile(`^unknown shorthand flag: '[0-9.]' in (-[0-9.]+)$`)
