package main

// This file is `qtop migrate`.

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// directDSN is the connection for migrations: a pooler in transaction mode
// cannot hold their lock.
func (a *app) directDSN() string {
	return cmp.Or(a.settings.ListenDSN, a.settings.DSN)
}

func migrateCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "Install, inspect or remove the schema"}
	u := schema.UpOptions{Progress: a.say}
	up := &cobra.Command{
		Use: "up", Short: "Install the schema, or bring it to this version", Args: cobra.NoArgs,
		Long: "Brings the database to this version in one transaction: missing roles, pending migrations, and the functions,\n" +
			"views, triggers, grants and comments that differ. A table that somebody holds for longer than 1.5 s rolls all of\n" +
			"it back; migrate says who holds it and starts again, until --lock-wait is over.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if u.LockWait <= 0 || u.LockWait > 24*time.Hour {
				return usage(fmt.Sprintf("--lock-wait is %s", u.LockWait), "command line", "use more than 0 and at most 24h")
			}
			return pgerror.Connect(schema.Current().Up(cmd.Context(), a.directDSN(), u))
		},
	}
	up.Flags().DurationVar(&u.LockWait, "lock-wait", 10*time.Minute, "how long to try again while somebody holds a table that must change")
	up.Flags().BoolVar(&u.AdoptRoles, "adopt-roles", false, "use roles of the cluster that exist although qtop did not make them")
	up.Flags().StringVar(&u.RolePrefix, "role-prefix", "", "give a database that is installed now roles of its own, whose names begin with this")
	cmd.AddCommand(up)
	var o schema.DownOptions
	down := &cobra.Command{
		Use: "down", Short: "Remove the schema; refuses while work would be lost", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return pgerror.Connect(schema.Down(cmd.Context(), a.directDSN(), o, a.say))
		},
	}
	down.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would go, change nothing")
	down.Flags().BoolVar(&o.Discard, "discard", false, "go on although unprocessed work is lost")
	cmd.AddCommand(down)
	cmd.AddCommand(&cobra.Command{
		Use: "status", Short: "Say which version and code are installed, and what differs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.migrateStatus(cmd.Context()) },
	})
	prefix := ""
	sql := &cobra.Command{
		Use: "sql", Short: "Print the SQL that migrate up would run", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := schema.Current().SQL(prefix)
			if err == nil {
				_, err = fmt.Fprint(a.out, text)
			}
			return err
		},
	}
	sql.Flags().StringVar(&prefix, "role-prefix", "", "with roles whose names begin with this")
	cmd.AddCommand(sql)
	return cmd
}

// standing is where a database stands, for `migrate status` and `version`.
type standing struct {
	schema.Status
	Hash    string              `json:"hash"` // of the code that this program carries
	Differs []schema.Difference `json:"differs"`
}

func (a *app) standing(ctx context.Context) (standing, error) {
	cfg, err := pgpool.ParseDSN(a.directDSN())
	if err != nil {
		return standing{}, err
	}
	conn, err := (&pgsession.Route{}).Connect(ctx, cfg)
	if err != nil {
		return standing{}, pgerror.Connect(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	st, err := schema.GetStatus(ctx, conn)
	if err != nil {
		return standing{}, pgerror.Connect(err)
	}
	differs, err := schema.Differences(ctx, conn)
	return standing{st, schema.Current().Hash, list(differs)}, pgerror.Connect(err)
}

func (s standing) lines() []string {
	installed := fmt.Sprintf("installed %d, this qtop knows %d", s.Current, s.Latest)
	have := queue.Choose(s.InstalledCode > 0, fmt.Sprintf("%d (%s)", s.InstalledCode, s.InstalledHash), "none")
	out := []string{installed, fmt.Sprintf("code: installed %s, this qtop carries %d (%s)", have, s.Code, s.Hash)}
	if s.RolePrefix != "" {
		out = append(out, "roles: "+s.RolePrefix+"queue_viewer and so on")
	}
	for _, name := range s.Pending {
		out = append(out, "pending "+name)
	}
	for _, d := range s.Differs {
		out = append(out, "differs "+d.Object+": "+d.Why)
	}
	return out
}

func (a *app) migrateStatus(ctx context.Context) error {
	st, err := a.standing(ctx)
	if err != nil {
		return err
	}
	if a.asJSON(st) {
		return nil
	}
	for _, line := range st.lines() {
		a.say(line)
	}
	return nil
}
