package main

// This file is `qtop migrate`.

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// directDSN is the connection for migrations: a pooler in transaction mode
// cannot hold their lock.
func (a *app) directDSN() string {
	if a.settings.ListenDSN != "" {
		return a.settings.ListenDSN
	}
	return a.settings.DSN
}

func (a *app) say(line string) { fmt.Fprintln(a.out, queue.Clean(line)) }

func (a *app) migrateCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "Install, inspect or remove the schema"}
	cmd.AddCommand(&cobra.Command{
		Use: "up", Short: "Install the schema, or bring it to this version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return pgclient.Explain(schema.Up(cmd.Context(), a.directDSN(), a.say))
		},
	})
	var o schema.DownOptions
	down := &cobra.Command{
		Use: "down", Short: "Remove the schema; refuses while work would be lost", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return pgclient.Explain(schema.Down(cmd.Context(), a.directDSN(), o, a.say))
		},
	}
	down.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would go, change nothing")
	down.Flags().BoolVar(&o.Discard, "discard", false, "go on although unprocessed work is lost")
	cmd.AddCommand(down)
	cmd.AddCommand(&cobra.Command{
		Use: "status", Short: "Say which version is installed", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.migrateStatus(cmd.Context()) },
	})
	cmd.AddCommand(&cobra.Command{
		Use: "sql", Short: "Print the SQL that migrate up would run", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(a.out, schema.SQL())
			return err
		},
	})
	return cmd
}

func (a *app) migrateStatus(ctx context.Context) error {
	cfg, err := pgclient.ParseDSN(a.directDSN())
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return pgclient.Explain(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	st, err := schema.GetStatus(ctx, conn)
	if err != nil {
		return pgclient.Explain(err)
	}
	if a.output == "json" {
		a.encode(a.out, st)
		return nil
	}
	a.say(fmt.Sprintf("installed %d, this qtop knows %d", st.Current, st.Latest))
	for _, name := range st.Pending {
		a.say("pending " + name)
	}
	return nil
}
