package schema

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
)

// DownOptions steers Down.
type DownOptions struct {
	DryRun  bool // say what would go, change nothing
	Discard bool // go on although unprocessed work would be lost
}

// Down removes everything that Up made, except the roles: logins may be members
// of them. It refuses while work, open dead letters, leases or executors of
// others would be lost, and says what and how many.
func Down(ctx context.Context, dsn string, o DownOptions, progress func(string)) error {
	return Current().Down(ctx, dsn, o, progress)
}

// Down is the function of the same name for this release.
func (r *Release) Down(ctx context.Context, dsn string, o DownOptions, progress func(string)) error {
	if progress == nil {
		progress = func(string) {}
	}
	conn, err := pgsession.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	from, err := version(ctx, conn)
	if err != nil {
		return explain(err, versionTable)
	}
	if from == 0 {
		progress("nothing is installed")
		return nil
	}
	if _, err := r.admit(ctx, conn); err != nil {
		return explain(err, "migrate down")
	}
	losses, err := Losses(ctx, conn)
	if err != nil {
		return explain(err, "migrate down")
	}
	jobs, err := cronJobs(ctx, conn)
	if err != nil {
		return explain(err, "migrate down")
	}
	if o.DryRun {
		jobs.say(progress, "would unschedule")
		r.dryRun(from, losses, progress)
		return nil
	}
	if len(losses) > 0 && !o.Discard {
		return queue.NewError(queue.KindFailed, "migrate down would lose "+strings.Join(losses, ", "), "", "nothing was changed; let the work finish, or say --discard")
	}
	if err := jobs.unschedule(ctx, conn); err != nil {
		return explain(err, "migrate down")
	}
	jobs.say(progress, "unscheduled")
	in := &installer{release: r, conn: conn, progress: progress}
	return explain(in.down(ctx, from), in.doing)
}

// down is the one transaction of Down: the code, then the tables from the newest
// migration to the oldest, then the version table.
func (in *installer) down(ctx context.Context, from int32) error {
	in.doing = "migrate down"
	tx, err := in.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	in.tx = tx
	// Here the lock may take its time: nothing is to go on working with the tables.
	if err := exec(ctx, tx, sessionSQL+"\nSET LOCAL lock_timeout = '1min';"); err != nil {
		return err
	}
	if err := in.lockMigrations(ctx); err != nil {
		return err
	}
	if in.records, err = readRecords(ctx, tx); err != nil {
		return err
	}
	if in.roleSet, err = storedRoles(ctx, tx); err != nil {
		return err
	}
	if err := exec(ctx, tx, "SET LOCAL ROLE "+in.roleSet.owner()); err != nil {
		return err
	}
	// Trigger functions go last: triggers go with their tables, those of leaves too.
	code, triggerFunctions := in.codeToDrop()
	for _, o := range code {
		in.doing = o.String()
		if _, err := in.dropWithDependents(ctx, o); err != nil {
			return err
		}
	}
	var said []string
	for _, m := range slices.Backward(in.release.migrations[:from]) {
		in.doing = "migrations/" + m.name + ".sql"
		if err := in.exec(ctx, tx, m.down); err != nil {
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
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	for _, line := range said {
		in.progress(line)
	}
	return nil
}

var returnsTrigger = regexp.MustCompile(`(?i)\bRETURNS\s+trigger\b`)

// codeToDrop are the views and functions to drop: those that only another release
// declares, then ours against the order of installation.
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

func (r *Release) dryRun(from int32, losses []string, progress func(string)) {
	counts := map[kind]int{}
	for _, o := range r.objects {
		counts[o.kind]++
	}
	progress(fmt.Sprintf("would remove %d views and %d functions with their triggers", counts[view], counts[function]))
	for _, m := range slices.Backward(r.migrations[:from]) {
		progress("would remove " + m.name + ".sql")
	}
	for _, l := range losses {
		progress("would lose " + l)
	}
	if len(losses) > 0 {
		progress("refused without --discard")
	}
}

// Removes tells whether Down drops every one of these tables, functions and
// triggers: code is dropped because it is declared, tables by their migrations.
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
