package main

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
)

// completionTime is the longest time that a completion may take: a person waits
// for it.
const completionTime = time.Second

// completionAge is the greatest age of the snapshot from which ids are offered:
// a key press should not compute a new snapshot.
const completionAge = 10 * time.Second

// completeIDs completes arguments with the ids of a kind that
// queue.Snapshot.IDs or idQueries knows. most is the greatest number of
// arguments, 0 = any number.
func (a *app) completeIDs(of string, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return offered(a.live(cmd, of)), cobra.ShellCompDirectiveNoFileComp
	}
}

// offered returns ids with a few words about each, without those that a line of the answer cannot hold.
func offered(ids []queue.ID) (out []cobra.Completion) {
	for _, id := range ids {
		if id.ID == strings.TrimSpace(id.ID) && !strings.ContainsFunc(id.ID, unicode.IsControl) {
			out = append(out, cobra.CompletionWithDesc(id.ID, ansi.Truncate(strings.Join(strings.Fields(id.About), " "), 60, "…")))
		}
	}
	return out
}

// completeQueue completes the name of a waiting queue word by word: it has blanks, and why needs no quotes.
func (a *app) completeQueue(cmd *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
	for _, id := range a.live(cmd, "queue") {
		words := strings.Fields(id.ID)
		if n := len(args); n < len(words) && slices.Equal(words[:n], args) && !slices.Contains(out, words[n]) {
			out = append(out, words[n])
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeFlag completes the key of a flag of the database, then its value.
func (a *app) completeFlag(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return offered(a.liveFrom(cmd, func(ctx context.Context, c *pgclient.Client) []queue.ID { return flagValues(ctx, c, args[0]) })), cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeIDs("flag", 1)(cmd, args, typed)
}

// completeLanes completes --kind and --domain with the kinds and domains of the
// queue lanes.
func (a *app) completeLanes(cmd *cobra.Command) {
	for _, name := range []string{"kind", "domain"} {
		_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return offered(a.live(cmd, "lane "+name)), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// completeSettings completes the flags of settings that have fixed values. For
// all other flags of all verbs, and for the arguments of verbs that complete none,
// it turns off the completion of file names, because none takes a file.
func (a *app) completeSettings(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	fixed := func(values ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	_ = root.RegisterFlagCompletionFunc("theme", fixed(config.Themes()...))
	_ = root.RegisterFlagCompletionFunc("pooler", fixed(config.Poolers()...))
	_ = root.RegisterFlagCompletionFunc("loops", fixed(workerhost.LoopNames()...))
	_ = root.RegisterFlagCompletionFunc("profile", func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.completeProfiles(cmd, nil, typed)
	})
	noFiles(root)
}

func noFiles(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			// It returns an error if the flag has a completion already.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		})
	}
	for _, c := range cmd.Commands() {
		noFiles(c)
	}
}

// completeCodes completes code: in the last word of a filter on dead letters.
func (a *app) completeCodes(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const field = "code:"
	head, word := "", typed
	if i := strings.LastIndexByte(typed, ' '); i >= 0 {
		head, word = typed[:i+1], typed[i+1:]
	}
	var out []cobra.Completion
	if strings.HasPrefix(field, word) || strings.HasPrefix(word, field) {
		for _, id := range a.live(cmd, "code") {
			if !strings.ContainsFunc(id.ID, unicode.IsSpace) { // which would be two terms
				out = append(out, offered([]queue.ID{{ID: head + field + id.ID, About: id.About}})...)
			}
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// live reads ids from the database that the command line names. After an error
// it returns no ids: a message would appear in the middle of the typed line.
func (a *app) live(cmd *cobra.Command, of string) []queue.ID {
	return a.liveFrom(cmd, func(ctx context.Context, c *pgclient.Client) []queue.ID { return idsOf(ctx, c, of) })
}

// liveFrom reads ids for at most completionTime.
func (a *app) liveFrom(cmd *cobra.Command, ids func(context.Context, *pgclient.Client) []queue.ID) []queue.ID {
	if a.load(cmd) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	found := make(chan []queue.ID, 1)
	go func() { found <- a.readIDs(ctx, ids) }()
	select {
	case all := <-found:
		return all
	case <-ctx.Done():
		return nil
	}
}

func (a *app) readIDs(ctx context.Context, ids func(context.Context, *pgclient.Client) []queue.ID) []queue.ID {
	client, err := a.client(ctx, 0)
	if err != nil {
		return nil
	}
	defer client.Close()
	return ids(ctx, client)
}

// completeArgs adds completions of targets, choices and the filter to the
// command of an action.
func (v *verb) completeArgs(a *app) {
	t, free := v.entry.Targets, v.entry.Free()
	if t.Of != "" && t.Of != "loop" {
		v.cmd.ValidArgsFunction = a.completeIDs(t.Of, queue.Choose(t.Many, 0, 1))
	} else if free.Name == "" || free.Kind != queue.ArgText {
		v.cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	if v.entry.ID == queue.ActFlagSet {
		v.cmd.ValidArgsFunction = a.completeFlag
	}
	for _, arg := range v.entry.Args {
		options := arg.Choices
		switch {
		case arg.Kind == queue.ArgSwitch:
			options = []string{"true", "false"}
		case arg.Or != "":
			options = []string{arg.Or}
		}
		if !arg.Positional && len(options) > 0 {
			_ = v.cmd.RegisterFlagCompletionFunc(arg.Name, cobra.FixedCompletions(options, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	if t.Instead == "filter" && t.List == "dlq" {
		_ = v.cmd.RegisterFlagCompletionFunc("filter", a.completeCodes)
	}
}
