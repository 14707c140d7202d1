package main

// app is the state that all verbs share: the command line, standard input, and
// the settings from flags, environment and file.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

type app struct {
	writer
	in         io.Reader
	lines      lineQueue // below errs; a worker host starts it
	args       []string  // the command line
	pane       string
	filter     string
	access     bool
	unsure     atomic.Value // string: what an interruption leaves unknown, or that it changed nothing; "" for a verb that only reads
	unfinished atomic.Value // string: the temporary file of newFile
	settings   config.Settings
	files      []fileFinding         // findings about files that other users may change or read (files.go)
	sources    func() config.Sources // the sources from which load read the settings
	reread     func() error          // reads the settings again
	finished   func()                // tells endVerbBy or endBy that the program ends by itself
}

// checkFlags refuses a form of output that the verb does not have, and the flag
// of a setting that has no effect on it. It reads no settings.
func (a *app) checkFlags(cmd *cobra.Command) error {
	forms := formsOf(cmd)
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
		return usage(fmt.Sprintf("--output cannot be %q", bad), "command line", do)
	}
	return cmp.Or(checkEmpty(cmd), checkSettings(cmd))
}

// checkEmpty refuses an argument or a flag of the verb itself that was given and is empty, such as
// "$UNTIL" of a script that did not set it: the verb would do as if it had been left out.
func checkEmpty(cmd *cobra.Command) error {
	empty := func(s string) bool { return strings.TrimSpace(s) == "" }
	if slices.ContainsFunc(cmd.Flags().Args(), empty) {
		return usage("an argument is empty", "command line", "write "+cmd.UseLine())
	}
	own := cmd.LocalNonPersistentFlags()
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		var values []string
		switch v := f.Value.(type) {
		case pflag.SliceValue:
			values = v.GetSlice()
		default:
			if v.Type() == "string" {
				values = []string{v.String()}
			}
		}
		if err == nil && f.Annotations[mayBeEmpty] == nil && own.Lookup(f.Name) != nil && slices.ContainsFunc(values, empty) {
			err = usage("--"+f.Name+" is empty", "command line", "give it a value or leave it out")
		}
	})
	return err
}

// mayBeEmpty is the annotation of a flag that checkEmpty leaves to the verb: an empty value has a
// separate meaning, or the verb says what is needed instead.
const mayBeEmpty = "qtop_empty"

func leaveEmpty(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, mayBeEmpty, []string{"true"}) // fails only for a flag that does not exist
	}
}

// load reads the settings. The error names all their problems at once.
func (a *app) load(cmd *cobra.Command) error {
	if err := a.checkFlags(cmd); err != nil {
		return err
	}
	flags := map[string]string{}
	known := map[string]bool{}
	for _, k := range config.Keys() {
		known[k.Flag] = true
	}
	own := cmd.LocalNonPersistentFlags() // flags of this verb, which are not settings even if a setting has the same name
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if known[f.Name] && own.Lookup(f.Name) == nil {
			flags[f.Name] = f.Value.String()
		}
	})
	a.sources = func() config.Sources { return judged(config.System(flags)) }
	a.reread = func() error { return a.read(a.sources()) }
	if err := a.reread(); err != nil && cmd.Annotations["config"] != "shown" {
		return err
	}
	return nil
}

// read reads the settings from their sources and registers every secret among
// them for masking.
func (a *app) read(src config.Sources) (err error) {
	if err := unreadFile(); err != nil {
		return err
	}
	src = judged(src)
	a.settings, err = config.Load(src)
	if err = cmp.Or(err, unreadFile()); err != nil {
		return err
	}
	a.ascii.Store(a.settings.ASCII)
	a.files = guarded(src, a.settings)
	return refused(a.files)
}

// judged adds two functions to src: one checks every connection string, the
// other remembers every text, so that secrets in it can be masked.
func judged(src config.Sources) config.Sources {
	src.Judge, src.Seen = secrecy.CheckDSN, secrecy.LearnText
	return src
}

// connected returns the RunE of a verb that needs the database: it opens the
// client, calls run, and closes the client. workConns is the number of
// connections for a worker host; 0: this verb runs no host.
func (a *app) connected(workConns int32, run func(context.Context, *pgclient.Client, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := a.client(cmd.Context(), workConns)
		if err != nil {
			return err
		}
		defer client.Close()
		return run(cmd.Context(), client, args)
	}
}

// client opens a client with the current settings.
func (a *app) client(ctx context.Context, workConns int32) (*pgclient.Client, error) {
	return pgclient.Open(ctx, a.options(workConns))
}

// reader opens a client for a verb that only reads. Where the schema does not fit this program, such
// as that of an older release, what the verb reads may lack something, and a warning names the cure.
func (a *app) reader(ctx context.Context) (*pgclient.Client, error) {
	o := a.options(0)
	o.Misfit = a.warning
	return pgclient.Open(ctx, o)
}

func (a *app) options(workConns int32) pgclient.Options {
	return pgclient.Options{
		DSN: a.settings.DSN, ListenDSN: a.settings.ListenDSN, Pooler: a.settings.Pooler, Actor: a.settings.Actor,
		ReadOnly: a.settings.ReadOnly, WorkConns: workConns, ExpectServer: a.settings.ExpectServer,
		Actions: actions.Registry(),
	}
}

// terminal reports whether f is a terminal, at which a person may answer.
func terminal(f any) bool {
	for {
		w, ok := f.(interface{ Unwrap() io.Writer })
		if !ok {
			break
		}
		f = w.Unwrap()
	}
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	st, err := file.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	// /dev/null is a character device too. Cron and systemd give it as standard
	// input.
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(st, null)
}

func asQueueError(err error) (*queue.Error, bool) {
	var q *queue.Error
	ok := errors.As(err, &q)
	return q, ok
}
