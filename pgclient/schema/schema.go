// Package schema installs, inspects and removes what qtop keeps in PostgreSQL:
// numbered plain-SQL migrations, run by tern under a session lock, so the DSN
// must be a direct connection. Objects are owned by the NOLOGIN role
// queue_owner; the migrator needs CREATEROLE (or the roles made beforehand) and
// membership in it.
package schema

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/tern/v2/migrate"

	"github.com/qtop/qtop/pgclient/queue"
)

//go:embed migrations/*.sql
var files embed.FS

// versionTable is tern's; its name is ours alone, for other programs of the
// database may use tern too.
const versionTable = "public.qtop_schema_version"

// Hash identifies the migrations that this program carries.
func Hash() string {
	h := sha256.New()
	entries, err := fs.ReadDir(files, "migrations")
	if err != nil {
		panic(err) // the embedded file system cannot fail
	}
	for _, e := range entries {
		b, err := files.ReadFile("migrations/" + e.Name())
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(h, "%s %d\n", e.Name(), len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Latest is the version this program knows.
func Latest() int32 {
	entries, err := fs.ReadDir(files, "migrations")
	if err != nil {
		panic(err)
	}
	return int32(len(entries))
}

// SQL is the text of all migrations, up parts only, in order: what `migrate
// sql` prints for a database administrator to read.
func SQL() string {
	var b strings.Builder
	for _, m := range mustLoad() {
		fmt.Fprintf(&b, "-- %s\n%s\n", m.name, m.up)
	}
	return b.String()
}

// Removes tells whether the down parts drop every one of these.
func Removes(objects ...string) bool {
	var down strings.Builder
	for _, m := range mustLoad() {
		down.WriteString(m.down)
	}
	for _, o := range objects {
		if !regexp.MustCompile(`(?m)^DROP (?:TABLE|VIEW|FUNCTION|TRIGGER) (?:public\.)?` + regexp.QuoteMeta(o) + `\b`).MatchString(down.String()) {
			return false
		}
	}
	return true
}

type migration struct{ name, up, down string }

func mustLoad() []migration {
	entries, err := fs.ReadDir(files, "migrations")
	if err != nil {
		panic(err)
	}
	var all []migration
	for _, e := range entries {
		b, err := files.ReadFile("migrations/" + e.Name())
		if err != nil {
			panic(err)
		}
		up, down, _ := strings.Cut(string(b), "---- create above / drop below ----")
		all = append(all, migration{e.Name(), strings.TrimSpace(up), down})
	}
	return all
}

// Up brings the database to Latest and calls progress with a line per step. It
// refuses where a table of ours exists that qtop did not make.
func Up(ctx context.Context, dsn string, progress func(string)) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	from, err := admit(ctx, conn)
	if err != nil {
		return explain(err)
	}
	m, err := migrator(ctx, conn, progress)
	if err != nil {
		return err
	}
	if err := m.Migrate(ctx); err != nil {
		return explain(err)
	}
	if progress != nil && from == Latest() {
		progress(fmt.Sprintf("schema is at version %d already", from))
	}
	return ready(ctx, conn, progress)
}

// admit refuses a database that Up must not touch, before anything of ours is
// made in it. One snapshot, for somebody else may be migrating right now.
func admit(ctx context.Context, conn *pgx.Conn) (from int32, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if from, err = version(ctx, tx); err != nil {
			return err
		}
		if from > Latest() {
			return &queue.Error{
				Kind:  queue.KindFailed,
				What:  queue.Clean(fmt.Sprintf("the schema is at version %d, this qtop knows %d", from, Latest())),
				Where: queue.Clean(versionTable), Do: queue.Clean("use a newer qtop"),
			}
		}
		return refuseForeign(ctx, tx, from)
	})
	return from, err
}

// querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// version reads the installed version; 0 = nothing is installed.
func version(ctx context.Context, q querier) (v int32, err error) {
	var there bool
	if err = q.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", versionTable).Scan(&there); err == nil && there {
		err = q.QueryRow(ctx, "SELECT version FROM "+versionTable).Scan(&v)
	}
	return v, err
}

// ready does what every `migrate up` does, also one that found nothing to
// migrate: partitions of the months to come, the executor that an older
// installation left as a flag, and the right of everybody to see which version is
// installed.
func ready(ctx context.Context, conn *pgx.Conn, progress func(string)) error {
	var adopted string
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Its lock comes first: two that grant at once disturb each other.
		_, err := tx.Exec(ctx, "SELECT public.fn_queue_partitions_ensure()")
		if err == nil {
			err = tx.QueryRow(ctx, "SELECT public.fn_queue_hc_executor_adopt()").Scan(&adopted)
		}
		if err == nil {
			_, err = tx.Exec(ctx, "GRANT SELECT ON "+versionTable+" TO PUBLIC")
		}
		return err
	})
	if err == nil && adopted != "" && progress != nil {
		progress("dot_config: " + adopted + "; it is an executor now")
	}
	return explain(err)
}

var createRelation = regexp.MustCompile(`(?m)^CREATE (?:UNLOGGED )?(?:TABLE|VIEW) public\.([a-z0-9_]+)`)

// refuseForeign finds tables and views of the pending migrations that exist already: a
// foreign events or subscriptions table is nobody's to overwrite.
func refuseForeign(ctx context.Context, q querier, from int32) error {
	var names []string
	for i, m := range mustLoad() {
		if int32(i) >= from {
			for _, hit := range createRelation.FindAllStringSubmatch(m.up, -1) {
				names = append(names, hit[1])
			}
		}
	}
	rows, err := q.Query(ctx, `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname = ANY ($1) ORDER BY 1`, names)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(found) == 0 {
		return err
	}
	return &queue.Error{
		Kind:  queue.KindFailed,
		What:  queue.Clean("tables that qtop would make exist already and are not its own: " + strings.Join(found, ", ")),
		Where: queue.Clean("schema public"),
		Do:    queue.Clean("nothing was changed; use another database, or move them away"),
	}
}

// Status says where the database stands.
type Status struct {
	Current int32    `json:"current"`
	Latest  int32    `json:"latest"`
	Pending []string `json:"pending"`
}

// GetStatus reads the installed version; 0 = nothing installed.
func GetStatus(ctx context.Context, conn *pgx.Conn) (Status, error) {
	s := Status{Latest: Latest(), Pending: []string{}}
	var err error
	s.Current, err = version(ctx, conn)
	for i, m := range mustLoad() {
		if int32(i) >= s.Current {
			s.Pending = append(s.Pending, m.name)
		}
	}
	return s, err
}

// DownOptions steers Down.
type DownOptions struct {
	DryRun  bool // say what would go, change nothing
	Discard bool // go on although unprocessed work would be lost
}

// Down removes everything that Up made, except the roles: logins may be members
// of them. It refuses while work, open dead letters, leases or executors of
// others would be lost, and says what and how many.
func Down(ctx context.Context, dsn string, o DownOptions, progress func(string)) error {
	if progress == nil {
		progress = func(string) {}
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	from, err := version(ctx, conn)
	if err != nil {
		return explain(err)
	}
	if from == 0 {
		progress("nothing is installed")
		return nil
	}
	losses, err := Losses(ctx, conn)
	if err != nil {
		return explain(err)
	}
	jobs, err := cronJobs(ctx, conn)
	if err != nil {
		return explain(err)
	}
	if o.DryRun {
		jobs.say(progress, "would unschedule")
		return dryRun(from, losses, progress)
	}
	if len(losses) > 0 && !o.Discard {
		return &queue.Error{
			Kind: queue.KindFailed, What: queue.Clean("migrate down would lose " + strings.Join(losses, ", ")),
			Do: queue.Clean("nothing was changed; let the work finish, or say --discard"),
		}
	}
	if err := jobs.unschedule(ctx, conn); err != nil {
		return explain(err)
	}
	jobs.say(progress, "unscheduled")
	m, err := migrator(ctx, conn, progress)
	if err != nil {
		return err
	}
	if err := m.MigrateTo(ctx, 0); err != nil {
		return explain(err)
	}
	_, err = conn.Exec(ctx, "DROP TABLE "+versionTable)
	return explain(err)
}

func dryRun(from int32, losses []string, progress func(string)) error {
	all := mustLoad()
	for i := int(from) - 1; i >= 0; i-- {
		progress("would remove " + all[i].name)
	}
	for _, l := range losses {
		progress("would lose " + l)
	}
	if len(losses) > 0 {
		progress("refused without --discard")
	}
	return nil
}

// migrator loads the migrations and reports tern's steps. It makes the version
// table where there is none.
func migrator(ctx context.Context, conn *pgx.Conn, progress func(string)) (*migrate.Migrator, error) {
	m, err := migrate.NewMigrator(ctx, conn, versionTable)
	if err != nil {
		return nil, explain(err)
	}
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, err
	}
	if err := m.LoadMigrations(sub); err != nil {
		return nil, err
	}
	m.OnStart = func(seq int32, name, direction, _ string) {
		if progress != nil {
			progress(fmt.Sprintf("%s %03d %s", direction, seq, strings.TrimSuffix(name, ".sql")))
		}
	}
	return m, nil
}

// explain turns a server error into the one line an operator needs.
func explain(err error) error {
	var mig migrate.MigrationPgError
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &mig):
		pg = mig.PgError
		where := mig.MigrationName
		if pg.Position > 0 {
			if line, lerr := migrate.ExtractErrorLine(mig.Sql, int(pg.Position)); lerr == nil {
				where += fmt.Sprintf(" line %d", line.LineNum)
			}
		}
		return pgError(pg, where)
	case errors.As(err, &pg):
		return pgError(pg, "migrate")
	}
	return err
}

func pgError(pg *pgconn.PgError, where string) error {
	e := &queue.Error{
		Kind: queue.KindFailed, What: queue.Clean(pg.Message), Where: queue.Clean(where + ", SQLSTATE " + pg.Code), Err: pg,
	}
	if pg.Code == "42501" {
		e.Kind = queue.KindPermission
		e.Do = queue.Clean("run migrate as a superuser, or as a role with CREATEROLE that owns the database")
	}
	return e
}
