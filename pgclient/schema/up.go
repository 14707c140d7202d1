package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
)

// migrateLock is the advisory lock that serializes migrations of one database. Older releases took
// the same lock for the session.
const migrateLock = 9628173550095224

// sessionSQL begins every transaction of a migration. It is sent as a separate message, because its
// settings must apply before the following text is parsed. A lock request ends after 1.5 s, because
// every session that needs the table waits behind it.
const sessionSQL = settingsSQL + `;
SET LOCAL lock_timeout = '1500ms';`

// settingsSQL makes statements, and the texts that the catalogue prints, independent of the
// settings of the server, the database and the login. It changes only settings that this login may
// change.
const settingsSQL = `SET LOCAL search_path = pg_catalog, pg_temp;
SELECT count(set_config(s.name, w.value, true)) FROM (VALUES
	('standard_conforming_strings', 'on'), ('backslash_quote', 'safe_encoding'), ('escape_string_warning', 'off'), ('array_nulls', 'on'),
	('transform_null_equals', 'off'), ('quote_all_identifiers', 'off'), ('xmloption', 'content'), ('bytea_output', 'hex'), ('extra_float_digits', '1'),
	('DateStyle', 'ISO, MDY'), ('IntervalStyle', 'postgres'), ('TimeZone', 'UTC'), ('check_function_bodies', 'off'), ('row_security', 'on'),
	('default_tablespace', ''), ('default_table_access_method', 'heap'), ('default_toast_compression', 'pglz'), ('createrole_self_grant', ''),
	('statement_timeout', '0'), ('lock_timeout', '0'),
	('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0'), ('session_replication_role', 'origin'), ('plpgsql.variable_conflict', 'error'), ('plpgsql.extra_errors', 'none'),
	('plpgsql.extra_warnings', 'none')) w (name, value)
JOIN pg_settings s ON s.name = w.name
WHERE s.setting <> w.value AND (s.context = 'user' OR s.context = 'superuser' AND (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user))`

// Up brings the database to the current release: see [Release.Up].
func Up(ctx context.Context, dsn string, progress func(string)) error {
	return Current().Up(ctx, dsn, UpOptions{Progress: progress})
}

// UpOptions are the options of Up.
type UpOptions struct {
	Progress func(string) // gets one line per step
	// Connected is called once with the database of the session, before anything is changed.
	Connected func(Place)
	// LockWait is how long Up repeats its attempts while another session holds a table that it must
	// change; 0 = 10 minutes.
	LockWait time.Duration
	// RolePrefix is the prefix of the role names in a new installation; later Up uses the stored
	// prefix.
	RolePrefix string
	AdoptRoles bool // use existing roles although qtop did not make them
	// Beside is called before qtop is installed in a database that has tables of other programs;
	// its error ends Up. nil = Up does not ask.
	Beside func(ctx context.Context, tables []string) error
}

// Up brings a database to this release:
//
//  1. It takes the migration lock. If another migration holds it, Up reports which, and
//     waits.
//  2. It refuses a database that it must not change: of a server before PostgreSQL 15, with
//     another encoding than UTF-8, installed by a newer qtop, or with tables under qtop's
//     names that qtop did not make.
//  3. In one transaction it creates missing roles, locks the tables that it will
//     change, ordered by name, and runs the pending migrations, the objects of the code
//     that differ from the installed ones, and the seeds.
//  4. It revokes from viewers what older releases granted them, creates the partitions
//     of the coming months, and runs the bulk moves of data.
//
// If the lock of a table is not granted within 1.5 s, step 3 is rolled back; Up reports which
// session holds the table and repeats the step, until LockWait is over. So a database always has
// either the old release or this one, never a mix.
func (r *Release) Up(ctx context.Context, dsn string, o UpOptions) error {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.LockWait == 0 {
		o.LockWait = 10 * time.Minute
	}
	conn, err := connect(ctx, dsn, o.Connected)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := pgsession.Encoding(conn); err != nil {
		return err
	}
	if err := pgsession.Writable(conn, &pgsession.Route{}); err != nil {
		return err
	}
	if err := admitServer(ctx, conn); err != nil {
		return err
	}
	if err := askBeside(ctx, conn, o); err != nil {
		return err
	}
	if err := r.upUntilLocked(ctx, conn, o); err != nil {
		return err
	}
	if err := narrowViewers(ctx, conn, o.Progress); err != nil {
		return err
	}
	if err := makePartitions(ctx, conn, o); err != nil {
		return err
	}
	if err := finish(ctx, conn, o.Progress); err != nil {
		return err
	}
	return r.runMoves(ctx, conn, o.Progress)
}

// askBeside calls o.Beside if there are tables of other programs and qtop is not installed yet.
func askBeside(ctx context.Context, conn *pgx.Conn, o UpOptions) error {
	if o.Beside == nil {
		return nil
	}
	v, err := version(ctx, conn)
	if err != nil || v > 0 {
		return explain(err, versionTable)
	}
	tables, err := pgrow.Column[string](ctx, conn, `SELECT format('%s.%s', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition AND c.relpersistence <> 't' AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
			AND c.oid IS DISTINCT FROM to_regclass($1) AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
		ORDER BY 1`, versionTable)
	if err != nil || len(tables) == 0 {
		return explain(err, "migrate up")
	}
	return o.Beside(ctx, tables)
}

// upUntilLocked repeats the transaction of Up until all its locks are granted.
func (r *Release) upUntilLocked(ctx context.Context, conn *pgx.Conn, o UpOptions) error {
	deadline := time.Now().Add(o.LockWait)
	seen := watchBlockers(ctx, conn)
	defer seen.close()
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		in := &installer{release: r, conn: conn, progress: o.Progress, options: o}
		err := in.run(ctx)
		if !retryable(err) {
			return explainTrigger(ctx, conn, explain(err, in.doing))
		}
		who := seen.blocker()
		if time.Now().Add(pause).After(deadline) {
			return queue.NewError(queue.KindFailed, "gave up after "+queue.DurationText(o.LockWait)+": "+who, in.doing,
				"nothing was changed; end that transaction, or run migrate up again when it has ended").Because(err)
		}
		o.Progress(fmt.Sprintf("%s; nothing was changed, next attempt in %s", who, pause))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// retryable reports whether a later attempt may succeed: after a lock timeout, a deadlock, or a
// conflict of two transactions that changed the same catalogue row.
func retryable(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return slices.Contains([]string{"55P03", "40P01", "40001"}, pg.Code) ||
		pg.Code == "XX000" && strings.HasPrefix(pg.Message, "tuple concurrently")
}

// installer is one attempt of Up.
type installer struct {
	release  *Release
	options  UpOptions
	conn     *pgx.Conn
	tx       pgx.Tx
	progress func(string)
	doing    string   // the current file or object, for errors
	said     []string // progress lines, reported after the commit

	roleSet    roleSet
	roleOrigin map[string]string // by logical name: how each role became part of the set

	before     installedCode
	records    map[key]recorded        // the hashes that the last migration recorded
	comparable bool                    // the records have the form (formOf) of this program on this server
	signatures map[string]string       // by name: the functions with the types of their arguments
	found      map[kind]map[key]string // the objects of the catalogue as read since the last change
}

// run is the transaction of Up.
func (in *installer) run(ctx context.Context) error {
	in.doing = "migrate up"
	tx, err := begin(ctx, in.conn)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	in.tx = tx
	if err := exec(ctx, tx, sessionSQL); err != nil {
		return err
	}
	if err := in.lockMigrations(ctx); err != nil {
		return err
	}
	if err := in.admitSchema(ctx); err != nil {
		return err
	}
	from, err := in.release.admit(ctx, tx, in.options.RolePrefix)
	if err != nil {
		return err
	}
	if in.before, err = readCode(ctx, tx); err != nil {
		return err
	}
	if in.records, err = readRecords(ctx, tx); err != nil {
		return err
	}
	in.comparable = in.before.Form == formOf(in.conn)
	for _, step := range []func(context.Context, int32) error{in.admitRoles, in.roles, in.lockTables, in.tables, in.recordRoles, in.code} {
		if err := step(ctx, from); err != nil {
			return err
		}
	}
	in.doing = "migrate up"
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	for _, line := range in.said {
		in.progress(line)
	}
	if len(in.said) == 0 {
		in.progress(fmt.Sprintf("schema is at version %d, code %d (%s) already", from, in.release.Code, in.release.Hash))
	}
	return nil
}

// begin starts a transaction of a migration, whatever the server's default isolation level is.
func begin(ctx context.Context, conn *pgx.Conn) (pgx.Tx, error) {
	return conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite, DeferrableMode: pgx.NotDeferrable})
}

// lockMigrations waits until no other migration of this database is running. The lock
// ends with the transaction.
func (in *installer) lockMigrations(ctx context.Context) error {
	var got bool
	if err := in.tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", int64(migrateLock)).Scan(&got); err != nil || got {
		return err
	}
	var who string
	if err := in.tx.QueryRow(ctx, `SELECT COALESCE((SELECT format('pid %s (%s)', l.pid, concat_ws(' ', a.usename, a.application_name,
			'since ' || date_trunc('second', clock_timestamp() - a.xact_start)))
		FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND (l.classid::bigint << 32) + l.objid::bigint = $1 LIMIT 1), 'somebody')`, int64(migrateLock)).Scan(&who); err != nil {
		return err
	}
	in.progress("another migration of this database is running: " + who + "; waiting for it to end")
	if err := exec(ctx, in.tx, "SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock("+fmt.Sprint(int64(migrateLock))+")"); err != nil {
		return err
	}
	return exec(ctx, in.tx, sessionSQL)
}

func (in *installer) roles(ctx context.Context, _ int32) error {
	in.doing = "roles"
	return in.exec(ctx, in.tx, rolesSQL+"\nSET LOCAL ROLE :\"queue_owner\";")
}

// tables runs the pending migrations as the owner.
func (in *installer) tables(ctx context.Context, from int32) error {
	if from == in.release.Version() {
		return nil
	}
	if err := in.recordVersion(ctx); err != nil {
		return err
	}
	in.found = nil
	for _, m := range in.release.migrations[from:] {
		in.doing = "migrations/" + m.name + ".sql"
		if err := in.exec(ctx, in.tx, m.up); err != nil {
			return err
		}
		if err := exec(ctx, in.tx, identifySQL); err != nil {
			return err
		}
		in.said = append(in.said, "up "+m.title())
	}
	return nil
}

// asOwner runs f in a transaction with the settings of a migration, as the owner of qtop's objects:
// a login need not inherit the rights of the owner.
func asOwner(ctx context.Context, conn *pgx.Conn, f func(tx pgx.Tx) error) error {
	set, err := storedRoles(ctx, conn)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := exec(ctx, tx, sessionSQL+"\n"+set.assume()+";"); err != nil {
			return err
		}
		return f(tx)
	})
}

// makePartitions creates the partitions of the coming months, in every `migrate up`, and reports those
// that cannot be made. If other sessions hold the tables in three attempts, it leaves that to the tick
// worker retention_sweep: the schema is installed already, and other sessions wait behind each attempt.
func makePartitions(ctx context.Context, conn *pgx.Conn, o UpOptions) error {
	deadline := time.Now().Add(o.LockWait)
	for attempt := 1; ; attempt++ {
		var unmade []string
		err := asOwner(ctx, conn, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, `SELECT ARRAY(SELECT concat_ws('; ', f.value ->> 'why', f.value ->> 'remedy') FROM jsonb_each(e -> 'failed') f ORDER BY f.key)
				FROM (SELECT public.fn_queue_partitions_ensure() AS e, public.fn_event_stamps_always()) x`).Scan(&unmade)
		})
		switch {
		case !retryable(err):
			for _, why := range unmade {
				o.Progress("partitions: " + why)
			}
			return explain(err, "migrate up")
		case attempt == 3 || time.Now().After(deadline):
			o.Progress("partitions: other sessions hold the tables; retention_sweep makes the partitions in its next run")
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// finish does the other work of every `migrate up`: it registers the executor that an older
// installation kept as a flag, and reports if the database is a clone.
func finish(ctx context.Context, conn *pgx.Conn, progress func(string)) error {
	var adopted string
	var clone *string
	err := asOwner(ctx, conn, func(tx pgx.Tx) error {
		if err := exec(ctx, tx, "SET LOCAL lock_timeout = 0"); err != nil { // rows alone are locked here
			return err
		}
		return tx.QueryRow(ctx, "SELECT public.fn_queue_hc_executor_adopt(), public.fn_queue_clone_of()").Scan(&adopted, &clone)
	})
	if err == nil && adopted != "" {
		progress("dot_config: " + adopted + "; it is an executor now")
	}
	if err == nil && clone != nil { // migrate up never adopts a copy
		progress(*clone)
	}
	return explain(err, "migrate up")
}

// exec runs SQL text of any number of statements without arguments.
func exec(ctx context.Context, tx pgx.Tx, sql string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// exec runs SQL text with placeholders.
func (in *installer) exec(ctx context.Context, tx pgx.Tx, sql string) error {
	sql, err := expand(sql, in.roleSet)
	if err != nil {
		return err
	}
	err = exec(ctx, tx, sql)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Position > 0 {
		before := []rune(sql)[:min(int(pg.Position)-1, len([]rune(sql)))]
		return &lineError{err, strings.Count(string(before), "\n") + 1}
	}
	return err
}

// lineError adds the line of the SQL text to an error.
type lineError struct {
	error
	line int
}

func (e *lineError) Unwrap() error { return e.error }
