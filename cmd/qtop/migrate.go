package main

// `qtop migrate`.

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
	"github.com/qtop/qtop/pgclient/schema"
)

// directDSN returns the connection string for migrations: a pooler in transaction
// mode cannot hold the lock that they need.
func (a *app) directDSN() string {
	return cmp.Or(a.settings.ListenDSN, a.settings.DSN)
}

func migrateCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Annotations: map[string]string{settingsKey: "connection listen caller"}, Short: "Install, inspect or remove the schema"}
	var asked migrateAnswers
	u := schema.UpOptions{LockWait: 10 * time.Minute, Beside: func(ctx context.Context, tables []string) error { return a.beside(ctx, tables, asked) }}
	up := &cobra.Command{
		Use: "up", Example: "qtop migrate up", Short: "Install the schema, or bring it to this version", Args: cobra.NoArgs,
		Long: "Brings the database to this version in one transaction: missing roles, pending migrations, and the functions,\n" +
			"views, triggers, grants and comments that differ. A table that somebody holds for longer than 1.5 s rolls all of\n" +
			"it back; migrate says who holds it and starts again, until --lock-wait is over.\n\n" +
			"A first installation in a database that has tables of others asks, or wants --yes.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.mayMigrate(); err != nil {
				return err
			}
			if err := checkLockWait(u.LockWait); err != nil {
				return err
			}
			a.unsure.Store(migrationUnsure)
			return a.steps(func(connected func(schema.Place), say func(string)) error {
				u.Connected, u.Progress = connected, say
				return pgerror.Connect(schema.Current().Up(cmd.Context(), a.directDSN(), u))
			})
		},
	}
	durationFlag(up.Flags(), &u.LockWait, "lock-wait", "how long to try again while somebody holds a table that must change")
	up.Flags().BoolVar(&asked.yes, "yes", false, "install qtop in a database that has tables of others without asking")
	up.Flags().BoolVar(&u.AdoptRoles, "adopt-roles", false, "use roles of the cluster that exist although qtop did not make them")
	up.Flags().StringVar(&u.RolePrefix, "role-prefix", "", "give a database that is installed now its own roles, whose names begin with this prefix")
	cmd.AddCommand(up)
	o := schema.DownOptions{LockWait: time.Minute, Confirm: func(ctx context.Context, m schema.Removal) error { return a.confirmDown(ctx, m, asked) }}
	down := &cobra.Command{
		Use: "down", Example: "qtop migrate down --dry-run", Short: "Remove the schema; refuses while work or configuration would be lost", Args: cobra.NoArgs,
		Long: "Removes everything that migrate up made but the roles, in one transaction. It lists what it removes, with the number of\n" +
			"rows, and asks for the name of the database, in a guarded one for that of its environment; --confirm NAME gives it.\n" +
			"It refuses, and names all of it, while objects of others depend on those of qtop, and without --discard while work or\n" +
			"configuration would be lost.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.mayMigrate(); err != nil && !o.DryRun {
				return err
			}
			if err := checkLockWait(o.LockWait); err != nil {
				return err
			}
			a.unsure.Store(queue.Choose(o.DryRun, nothingChanged, migrationUnsure))
			return a.steps(func(connected func(schema.Place), say func(string)) error {
				o.Connected = connected
				return pgerror.Connect(schema.Down(cmd.Context(), a.directDSN(), o, say))
			})
		},
	}
	durationFlag(down.Flags(), &o.LockWait, "lock-wait", "how long to wait while somebody holds a table; others wait behind it")
	down.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would go, change nothing")
	down.Flags().BoolVar(&o.Discard, "discard", false, "go on although unprocessed work and configuration are lost")
	down.Flags().StringVar(&asked.confirm, "confirm", "", "name of the database, or in a guarded one of its environment, instead of typing it")
	cmd.AddCommand(down)
	cmd.AddCommand(&cobra.Command{
		Use: "status", Example: "qtop migrate status", Short: "Say which version and code are installed, and what differs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.migrateStatus(cmd.Context()) },
	})
	prefix := ""
	sql := &cobra.Command{
		Use: "sql", Example: "qtop migrate sql", Short: "Print the SQL that migrate up would run", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := schema.Current().SQL(prefix)
			if err == nil {
				_, err = fmt.Fprint(asItIs(a.out), text)
			}
			return err
		},
	}
	sql.Flags().StringVar(&prefix, "role-prefix", "", "with roles whose names begin with this")
	cmd.AddCommand(sql)
	return cmd
}

// checkLockWait refuses a time for --lock-wait that is out of range.
func checkLockWait(d time.Duration) error {
	if d < time.Millisecond || d > 24*time.Hour {
		return usage("--lock-wait cannot be "+queue.DurationText(d), "command line", "use at least 1ms and at most 24h")
	}
	return nil
}

const migrationUnsure = "qtop migrate status says what is installed now"

// steps runs a migration. It prints on which database it works, and then each step when it is done; in JSON all of it
// at the end, in one value.
func (a *app) steps(migrate func(connected func(schema.Place), say func(string)) error) error {
	if a.output != "json" {
		return migrate(a.sayPlace, a.say)
	}
	out := struct {
		schema.Place
		Lines []queue.Text `json:"lines"`
	}{Lines: []queue.Text{}}
	err := migrate(func(p schema.Place) { out.Place = p },
		func(line string) { out.Lines = append(out.Lines, queue.Clean(secrecy.Mask(line))) })
	if err == nil || len(out.Lines) > 0 {
		a.encode(a.out, out)
	}
	return err
}

func (a *app) sayPlace(p schema.Place) { a.say(p.String()) }

// migrateAnswers are answers, given on the command line, to the questions of
// migrate.
type migrateAnswers struct {
	yes     bool
	confirm string
}

// mayMigrate refuses if read_only is set.
func (a *app) mayMigrate() error {
	if a.settings.ReadOnly {
		return queue.NewError(queue.KindPermission, "read_only is set, and migrate changes the database", "settings", "nothing was changed; leave read_only out, or use another profile")
	}
	return nil
}

// beside asks whether to install qtop in a database that has tables of another
// application.
func (a *app) beside(ctx context.Context, tables []string, asked migrateAnswers) error {
	what := queue.Plural(len(tables), "table", "tables") + " of others and no qtop in this database: " + strings.Join(tables[:min(len(tables), 5)], ", ") + queue.Choose(len(tables) > 5, ", …", "")
	switch {
	case asked.yes:
		return nil
	case a.headless():
		return usage(what, "migrate up", "nothing was changed; say --yes if qtop belongs here, or name another database with --dsn")
	}
	fmt.Fprintln(a.errs, queue.Clean(what))
	return a.typed(ctx, "Install qtop here", "yes")
}

// confirmDown asks for the name of the database, or of its guarded environment,
// before migrate down removes the schema.
func (a *app) confirmDown(ctx context.Context, m schema.Removal, asked migrateAnswers) error {
	guard := m.Environment.Guard(a.settings.Production)
	want := cmp.Or(guard, m.Environment.Database.String())
	whose := queue.Choose(guard != "" && !m.Environment.Name.Empty(), "guarded environment", "database")
	switch {
	case asked.confirm == want:
		return nil
	case asked.confirm != "":
		return usage(fmt.Sprintf("the name of the %s is %s, not %s", whose, want, asked.confirm), "--confirm", "nothing was changed")
	case a.headless():
		return usage(fmt.Sprintf("the name of the %s (%s) is needed", whose, want), "migrate down", "nothing was changed; add --confirm NAME, or --dry-run to see what would be removed")
	}
	for _, line := range m.Lines() {
		fmt.Fprintln(a.errs, line)
	}
	return a.typed(ctx, fmt.Sprintf("Remove qtop from database %s", m.Environment.Database), want)
}

// standing is the state of the schema of a database, for `migrate status` and
// `version`.
type standing struct {
	schema.Status
	Hash    string              `json:"hash"` // of the code in this program
	Differs []schema.Difference `json:"differs"`
	Refused string              `json:"refusal"` // why this program must not work on the database; empty = it may
}

// standing reads the state; connected is called before that with the database.
func (a *app) standing(ctx context.Context, connected func(schema.Place)) (standing, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	cfg, err := pgpool.ParseDSN(a.directDSN())
	if err != nil {
		return standing{}, err
	}
	route := &pgsession.Route{}
	conn, err := route.Connect(ctx, cfg)
	if err != nil {
		return standing{}, pgerror.Connect(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	place, err := schema.ReadPlace(ctx, conn, route)
	if err != nil {
		return standing{}, pgerror.Connect(err)
	}
	connected(place)
	st, err := schema.GetStatus(ctx, conn)
	if err != nil {
		return standing{}, pgerror.Connect(err)
	}
	differs, err := schema.Differences(ctx, conn)
	out := standing{Status: st, Hash: schema.Current().Hash, Differs: list(differs)}
	if what, do := st.Refusal(); what != "" {
		out.Refused = what + ": " + do
	}
	return out, pgerror.Connect(err)
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
		out = append(out, queue.Clean("differs "+d.Object+": "+d.Why+queue.Choose(strings.HasPrefix(d.Remedy, "qtop "), "", "; "+d.Remedy)).String())
	}
	if s.Refused != "" {
		out = append(out, s.Refused)
	}
	return out
}

func (a *app) migrateStatus(ctx context.Context) error {
	var place schema.Place
	st, err := a.standing(ctx, func(p schema.Place) {
		if place = p; a.output != "json" {
			a.sayPlace(p)
		}
	})
	if err != nil {
		return err
	}
	if a.asJSON(struct {
		schema.Place
		standing
	}{place, st}) {
		return nil
	}
	for _, line := range st.lines() {
		a.say(line)
	}
	return nil
}
