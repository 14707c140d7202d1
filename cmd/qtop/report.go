package main

// `qtop report`: what happened in a span of time, as Markdown or JSON.

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient/queue"
)

func reportCmd(a *app) *cobra.Command {
	var since, until string
	cmd := &cobra.Command{
		Use: "report --since 02:00", Example: "qtop report --since 02:00 > incident.md", Short: "Write what happened as Markdown: silences, acks, actions, dead letters, curves", Args: cobra.NoArgs,
		Annotations: map[string]string{"output": "markdown"},
		Long: "Write what is recorded of a span of time as Markdown, or as JSON with --output json.\n" +
			"--since and --until take 02:00 (the last time the clock here showed it), a date and time, or a duration before now such as 3h.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, _, err := span(since, until, time.Now()); err != nil {
				return err
			}
			client, err := a.reader(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			now, err := client.Now(cmd.Context())
			if err != nil {
				return err
			}
			from, to, err := span(since, until, now)
			if err != nil {
				return err
			}
			r, err := client.Report(cmd.Context(), from, to)
			if err != nil {
				return err
			}
			if a.asJSON(r) {
				return nil
			}
			fmt.Fprint(a.out, reportMarkdown(r))
			return nil
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "where it begins: 02:00, 2026-11-22T02:00:00Z, 3h")
	cmd.Flags().StringVar(&until, "until", "", "where it ends, likewise; now, when left out")
	return cmd
}

// span parses the two ends of a report; now is the time of the server.
func span(since, until string, now time.Time) (from, to time.Time, err error) {
	if from, err = when("--since", since, now); err != nil || until == "" {
		return from, now, err
	}
	to, err = when("--until", until, now)
	return from, to, err
}

// when parses a time of the command line; now is the time of the server.
func when(flag, text string, now time.Time) (time.Time, error) {
	at, ok := queue.ParseWhen(text, now, time.Local)
	if !ok {
		return at, usage(fmt.Sprintf("%s %q is no point in time", flag, text), "command line", "say it like 02:00, 2026-11-22T02:00:00Z or 3h")
	}
	return at, nil
}
