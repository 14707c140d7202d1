package main

// This file is the small verbs: version, config, and the generated key list.

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient/queue"
)

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.output == "json" {
				a.encode(a.out, map[string]string{"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
				return nil
			}
			fmt.Fprintf(a.out, "qtop %s (%s %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

func (a *app) configCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show or check the configuration"}
	var origin bool
	show := &cobra.Command{
		Use: "show", Short: "Print every setting, passwords masked", Args: cobra.NoArgs, Annotations: map[string]string{"config": "shown"},
		RunE: func(*cobra.Command, []string) error {
			var rows [][]string
			heads := []string{"KEY", "VALUE"}
			if origin {
				heads = append(heads, "FROM")
			}
			for _, o := range a.settings.Origins() {
				row := []string{o.Key, queue.Clean(o.Value).String()}
				if origin {
					row = append(row, queue.Clean(o.From).String())
				}
				rows = append(rows, row)
			}
			a.print(a.settings.Origins(), heads, rows)
			return nil
		},
	}
	show.Flags().BoolVar(&origin, "origin", false, "say where each value comes from")
	cmd.AddCommand(show, &cobra.Command{
		Use: "check", Short: "Read every source; exit 78 and list the problems when there are any", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintln(a.out, "the configuration is fine")
			return nil
		},
	})
	return cmd
}

// keysCmd writes docs/keys.md from the registry; --check fails when it is stale.
func (a *app) keysCmd() *cobra.Command {
	var check string
	cmd := &cobra.Command{
		Use: "keys", Short: "Print the key bindings as Markdown", Args: cobra.NoArgs, Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			text := keysMarkdown()
			if check == "" {
				_, err := fmt.Fprint(a.out, text)
				return err
			}
			have, err := os.ReadFile(check)
			if err != nil {
				return err
			}
			if string(have) != text {
				return usage(check+" is stale", "docs", "run make docs")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&check, "check", "", "compare with this file")
	return cmd
}
