package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// DownOptions are the options of Down.
type DownOptions struct {
	DryRun  bool // report what would be removed, change nothing
	Discard bool // continue although unfinished work and configuration would be lost
	// LockWait is how long Down waits for the tables while another session holds one; 0 = 1 minute.
	// Other sessions wait behind it.
	LockWait time.Duration
	// Connected is called once with the database of the session, before anything is changed.
	Connected func(Place)
	// Confirm is called if Down does not refuse, before anything is locked or changed; its error
	// ends Down. nil = no confirmation.
	Confirm func(context.Context, Removal) error
}

// Removal is what Down would remove.
type Removal struct {
	Foreign    []string // objects that are not qtop's and depend on qtop's: Down refuses
	Lost       []string // unfinished work that would be lost; refused without Discard
	Configured []string // the configuration by operators; refused without Discard
	Rows       []string // each table with rows, and how many
	// Environment is the environment of the database; operators confirm Down by its name.
	Environment queue.Environment

	version int32
	jobs    cron
}

// Down removes everything that Up made, except the roles, because logins may be members of them.
// Down is one transaction, so that a failure leaves the database unchanged:
//
//  1. It reports what would be removed, and refuses, naming every reason: objects
//     of other owners that depend on qtop's; without Discard also unfinished work,
//     leases, registered executors and configuration.
//  2. It calls Confirm.
//  3. It locks the tables, checks again, and drops cron jobs, code, tables, and the
//     rights on schema public that Up granted.
func Down(ctx context.Context, dsn string, o DownOptions, progress func(string)) error {
	return Current().Down(ctx, dsn, o, progress)
}

// Down is like the function Down, for this release.
func (r *Release) Down(ctx context.Context, dsn string, o DownOptions, progress func(string)) error {
	if progress == nil {
		progress = func(string) {}
	}
	conn, err := connect(ctx, dsn, o.Connected)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	in := &installer{release: r, conn: conn, progress: progress, doing: "migrate down"}
	found, err := in.removal(ctx)
	switch {
	case err != nil:
		return explainDown(err, in.doing)
	case found.version == 0:
		progress("nothing is installed")
		return nil
	case o.DryRun:
		found.jobs.say(progress, "would unschedule")
		r.dryRun(found, progress)
		return nil
	}
	if err := found.refusal(o); err != nil {
		for _, line := range found.lines() {
			progress(line)
		}
		return err
	}
	if o.Confirm != nil {
		if err := o.Confirm(ctx, found); err != nil {
			return err
		}
	}
	o.LockWait = max(cmp.Or(o.LockWait, time.Minute), time.Millisecond)
	seen := watchBlockers(ctx, conn)
	defer seen.close()
	var pg *pgconn.PgError
	if err = in.down(ctx, o); errors.As(err, &pg) && pg.Code == "55P03" {
		return queue.NewError(queue.KindFailed, "gave up after "+queue.DurationText(o.LockWait)+": "+seen.blocker(), in.doing,
			"nothing was changed; end that transaction, or run migrate down again when it has ended").Because(err)
	}
	return explainDown(err, in.doing)
}

// removal reads the removal that Down would make, in a transaction that changes nothing.
func (in *installer) removal(ctx context.Context) (Removal, error) {
	tx, err := begin(ctx, in.conn)
	if err != nil {
		return Removal{}, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	in.tx = tx
	if err := exec(ctx, tx, sessionSQL); err != nil {
		return Removal{}, err
	}
	return in.look(ctx)
}

// look reads the removal that Down would make, in the current transaction.
func (in *installer) look(ctx context.Context) (m Removal, err error) {
	if m.version, err = version(ctx, in.tx); err != nil || m.version == 0 {
		return m, err
	}
	if _, err = in.release.admit(ctx, in.tx, ""); err != nil {
		return m, err
	}
	if in.records, err = readRecords(ctx, in.tx); err != nil {
		return m, err
	}
	if in.roleSet, err = storedRoles(ctx, in.tx); err != nil {
		return m, err
	}
	if err = assumeOwner(ctx, in.tx, in.roleSet); err != nil { // a login need not inherit its rights
		return m, err
	}
	if m.Foreign, err = in.release.foreign(ctx, in.tx, in.roleSet, m.version, in.records); err != nil {
		return m, err
	}
	if m.Lost, err = lostWork(ctx, in.tx); err != nil {
		return m, err
	}
	if m.Configured, err = configured(ctx, in.tx); err != nil {
		return m, err
	}
	if m.Rows, err = tableRows(ctx, in.tx, in.roleSet, in.release.migrations[:m.version]); err != nil {
		return m, err
	}
	var database, environment string
	if err = in.tx.QueryRow(ctx, "SELECT current_database()").Scan(&database); err != nil {
		return m, err
	}
	if err = ifInstalled(ctx, in.tx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT COALESCE((SELECT c.value FROM public.dot_config c WHERE c.key = $1), '')", queue.EnvironmentFlag).Scan(&environment)
	}); err != nil {
		return m, err
	}
	m.Environment = queue.ReadEnvironment(database, environment)
	if m.jobs, err = cronJobs(ctx, in.tx, in.roleSet); err != nil {
		return m, err
	}
	return m, exec(ctx, in.tx, "SET LOCAL ROLE NONE")
}

// assumeOwner makes the transaction act as the owner of qtop's objects, if the login may; a superuser
// does not need this, and can also read what another role owns.
func assumeOwner(ctx context.Context, tx pgx.Tx, set roleSet) error {
	var may bool
	if err := tx.QueryRow(ctx, `SELECT NOT r.rolsuper AND COALESCE(pg_has_role(r.oid, to_regrole($1),
		CASE WHEN current_setting('server_version_num')::int4 >= 160000 THEN 'SET' ELSE 'MEMBER' END), false) FROM pg_roles r WHERE r.rolname = session_user`, set.owner()).Scan(&may); err != nil || !may {
		return err
	}
	return exec(ctx, tx, set.assume())
}

// asLogin calls f with the rights of the login itself, in a transaction that acts as the owner.
func asLogin(ctx context.Context, tx pgx.Tx, set roleSet, f func() error) error {
	if err := exec(ctx, tx, "SET LOCAL ROLE NONE"); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return assumeOwner(ctx, tx, set)
}

// refusal returns the reason why Down must not continue, or nil.
func (m Removal) refusal(o DownOptions) error {
	if len(m.Foreign) > 0 {
		return refuse(queue.Plural(len(m.Foreign), "object that is not qtop's depends", "objects that are not qtop's depend")+" on what migrate down removes: "+few(m.Foreign), "",
			"nothing was changed; drop or move them, then run migrate down again; --dry-run names all")
	}
	if o.Discard {
		return nil
	}
	if len(m.Lost) > 0 {
		return refuse("migrate down would lose "+strings.Join(m.Lost, ", ")+queue.Choose(len(m.Configured) > 0, ", and configuration: "+strings.Join(m.Configured, "; "), ""), "",
			"nothing was changed; let the work finish, or pass --discard")
	}
	if len(m.Configured) > 0 {
		return refuse("migrate down would remove what is configured here: "+strings.Join(m.Configured, "; "), "", "nothing was changed; write it down, then pass --discard")
	}
	return nil
}

// lines returns the reasons against a removal and the tables with rows that it removes, one per
// line.
func (m Removal) lines() []string {
	var out []string
	for _, all := range []struct {
		what  string
		names []string
	}{{"in the way: ", m.Foreign}, {"would lose ", m.Lost}, {"would remove configuration: ", m.Configured}} {
		for _, name := range all.names {
			out = append(out, queue.Clean(all.what+name).String())
		}
	}
	if len(m.Rows) > 0 {
		out = append(out, "would remove the rows of "+queue.Plural(len(m.Rows), "table", "tables")+": "+strings.Join(m.Rows, ", "))
	}
	return out
}

// Lines returns what Down would remove and every reason against it, one per line,
// to show before a confirmation.
func (m Removal) Lines() []string { return m.lines() }

// down is the transaction of Down. It drops the cron jobs, the code, the tables from
// the newest migration to the oldest, the version table and the rights on the schema.
func (in *installer) down(ctx context.Context, o DownOptions) error {
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
	// Waiting longer for a lock is fine here: the tables are about to be dropped.
	if err := exec(ctx, tx, fmt.Sprintf("SET LOCAL lock_timeout = '%dms'", o.LockWait.Milliseconds())); err != nil {
		return err
	}
	if err := in.lockOwn(ctx); err != nil {
		return err
	}
	found, err := in.look(ctx) // again: the database may have changed before the locks
	if err != nil || found.version == 0 {
		return err
	}
	if err := found.refusal(o); err != nil {
		return err
	}
	in.doing = "the cron jobs"
	if err := found.jobs.unschedule(ctx, tx); err != nil {
		return err
	}
	if err := exec(ctx, tx, in.roleSet.assume()); err != nil {
		return err
	}
	// Trigger functions are dropped last: their triggers disappear with the tables, including those
	// of partitions.
	code, triggerFunctions := in.codeToDrop()
	for _, o := range code {
		in.doing = o.String()
		if _, err := in.dropWithDependents(ctx, o); err != nil {
			return err
		}
	}
	var said []string
	for _, m := range slices.Backward(in.release.migrations[:found.version]) {
		in.doing = "migrations/" + m.name + ".sql"
		if err := in.exec(ctx, tx, dropIfExists(m.down)); err != nil {
			return err
		}
		said = append(said, "down "+m.title())
	}
	for _, o := range triggerFunctions {
		in.doing = o.String()
		if err := in.dropAll(ctx, o); err != nil {
			return err
		}
	}
	in.doing = versionTable
	if err := exec(ctx, tx, "SET LOCAL ROLE NONE; DROP TABLE "+versionTable); err != nil {
		return err
	}
	in.doing = "the rights on schema public"
	if err := in.revokeSchema(ctx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	found.jobs.say(in.progress, "unscheduled")
	for _, line := range said {
		in.progress(line)
	}
	return nil
}

var dropsObject = regexp.MustCompile(`(?m)^(DROP (?:TRIGGER|INDEX|TABLE|TYPE|DOMAIN)|ALTER TABLE public\.\w+ DROP (?:CONSTRAINT|COLUMN)) (?:IF EXISTS )?`)

// dropIfExists makes the down part of a migration accept that somebody has dropped an object by hand.
func dropIfExists(down string) string { return dropsObject.ReplaceAllString(down, "$1 IF EXISTS ") }

// lockOwn locks the tables that will be dropped, in the order of their names, so that
// no new object can depend on them.
func (in *installer) lockOwn(ctx context.Context) error {
	set, err := storedRoles(ctx, in.tx)
	if err != nil {
		return err
	}
	in.doing = "locking the tables"
	if err := assumeOwner(ctx, in.tx, set); err != nil {
		return err
	}
	tables, err := pgrow.Column[string](ctx, in.tx, `SELECT format('public.%I', c.relname) FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
		AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relowner = to_regrole($1) ORDER BY c.relname`, set.owner())
	if err == nil && len(tables) > 0 {
		err = exec(ctx, in.tx, "LOCK TABLE "+strings.Join(tables, ", ")+" IN ACCESS EXCLUSIVE MODE")
	}
	if err == nil {
		err = exec(ctx, in.tx, "SET LOCAL ROLE NONE")
	}
	in.doing = "migrate down"
	return err
}

// revokeSchema revokes the rights on schema public that rolesSQL grants.
func (in *installer) revokeSchema(ctx context.Context) error {
	roles, err := pgrow.Column[string](ctx, in.tx, "SELECT quote_ident(r.rolname) FROM pg_roles r WHERE r.rolname::text = ANY ($1::text[]) ORDER BY 1", in.roleSet.all())
	if err != nil || len(roles) == 0 {
		return err
	}
	return exec(ctx, in.tx, "REVOKE USAGE, CREATE ON SCHEMA public FROM "+strings.Join(roles, ", "))
}

var returnsTrigger = regexp.MustCompile(`(?i)\bRETURNS\s+trigger\b`)

// codeToDrop returns the views and functions to drop: first those that only another
// release declares, then those of this release in reverse order of installation.
func (in *installer) codeToDrop() (code, triggerFunctions []object) {
	for k := range in.records {
		o := object{kind: k.kind, name: k.name}
		if (o.kind == view || o.kind == function) && !slices.ContainsFunc(in.release.objects, o.same) {
			code = append(code, o)
		}
	}
	for _, o := range in.release.dropped {
		if o.kind != trigger {
			code = append(code, o)
		}
	}
	for _, o := range slices.Backward(in.release.objects) {
		switch {
		case o.kind == function && returnsTrigger.MatchString(o.header()):
			triggerFunctions = append(triggerFunctions, o)
		case o.kind == function || o.kind == view:
			code = append(code, o)
		}
	}
	return code, triggerFunctions
}

func (r *Release) dryRun(m Removal, progress func(string)) {
	counts := map[kind]int{}
	for _, o := range r.objects {
		counts[o.kind]++
	}
	progress(fmt.Sprintf("would remove %s and %s with their triggers", queue.Plural(counts[view], "view", "views"), queue.Plural(counts[function], "function", "functions")))
	for _, m := range slices.Backward(r.migrations[:m.version]) {
		progress("would remove " + m.name + ".sql")
	}
	for _, line := range m.lines() {
		progress(line)
	}
	switch {
	case len(m.Foreign) > 0:
		progress("refused while objects that are not qtop's are in the way")
	case len(m.Lost)+len(m.Configured) > 0:
		progress("refused without --discard")
	}
}

// Removes reports whether Down drops all of these tables, functions and triggers: the release
// declares the functions and triggers, and the down parts of its migrations drop the tables.
func Removes(names ...string) bool {
	r := Current()
	var down strings.Builder
	for _, m := range r.migrations {
		down.WriteString(m.down + "\n")
	}
	for _, name := range names {
		declared := slices.ContainsFunc(r.objects, func(o object) bool {
			return (o.kind == function || o.kind == view || o.kind == trigger) && (o.name == name || strings.HasPrefix(o.name, name+" on "))
		})
		if !declared && !strings.Contains(down.String(), "DROP TABLE public."+name+";") {
			return false
		}
	}
	return true
}
