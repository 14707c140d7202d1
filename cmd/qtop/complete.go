package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient/queue"
)

// completionTime is the longest that a completion may take: somebody waits with a key pressed.
const completionTime = time.Second

// completionAge is how old the snapshot may be from which ids are offered: one key press should
// not compute a new one.
const completionAge = 10 * time.Second

// completeIDs completes arguments of a kind, as queue.Snapshot.IDs names them, or "endpoint"; at most most of them,
// 0 = any number.
func (a *app) completeIDs(of string, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out []cobra.Completion
		if most == 0 || len(args) < most {
			for _, id := range a.live(cmd, of) {
				out = append(out, cobra.CompletionWithDesc(id.ID, id.About))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
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
			out = append(out, cobra.CompletionWithDesc(head+field+id.ID, id.About))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// live reads ids from the database of the command line. It says nothing about errors, which would appear in the
// middle of what is typed: then there are no ids.
func (a *app) live(cmd *cobra.Command, of string) []queue.ID {
	if a.load(cmd) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	found := make(chan []queue.ID, 1)
	go func() { found <- a.readIDs(ctx, of) }()
	select {
	case ids := <-found:
		return ids
	case <-ctx.Done():
		return nil
	}
}

func (a *app) readIDs(ctx context.Context, of string) []queue.ID {
	client, err := a.client(ctx, 0)
	if err != nil {
		return nil
	}
	defer client.Close()
	var all []queue.ID
	if of == "endpoint" {
		p, err := client.List(ctx, queue.Query{Kind: queue.ListEndpoints})
		if err != nil {
			return nil
		}
		for _, e := range queue.Of[queue.EndpointList](p).Endpoints {
			all = append(all, queue.ID{ID: strconv.FormatInt(e.ID, 10), About: e.EventType.String() + " to " + e.Endpoint.String()})
		}
	} else if s, err := client.Snapshot(ctx, completionAge); err == nil {
		all = s.IDs(of)
	}
	var out []queue.ID
	for _, id := range all {
		if !strings.ContainsFunc(id.ID, func(r rune) bool { return r <= ' ' }) { // a completion is one word on a line
			out = append(out, queue.ID{ID: id.ID, About: ansi.Truncate(strings.Join(strings.Fields(id.About), " "), 60, "…")})
		}
	}
	return out
}

// completeArgs gives the command of an action the completions of its targets, its choices and its filter.
func (v *verb) completeArgs(a *app) {
	t, free := v.entry.Targets, v.entry.Free()
	if t.Of != "" && t.Of != "loop" {
		v.cmd.ValidArgsFunction = a.completeIDs(t.Of, queue.Choose(t.Many, 0, 1))
	} else if free.Name == "" || free.Kind != queue.ArgText {
		v.cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, arg := range v.entry.Args {
		if options := arg.Choices; !arg.Positional && (len(options) > 0 || arg.Kind == queue.ArgSwitch) {
			if arg.Kind == queue.ArgSwitch {
				options = []string{"true", "false"}
			}
			_ = v.cmd.RegisterFlagCompletionFunc(arg.Name, cobra.FixedCompletions(options, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	if t.Instead == "filter" && t.List == "dlq" {
		_ = v.cmd.RegisterFlagCompletionFunc("filter", a.completeCodes)
	}
}
