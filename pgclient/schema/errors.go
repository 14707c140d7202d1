package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// explain turns a server error into one line for the operator. where is the file or object on which
// the installer was working.
func explain(err error, where string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	var at *lineError
	if errors.As(err, &at) {
		where += fmt.Sprintf(" line %d", at.line)
	}
	what := pg.Message
	if pg.Code == "2BP01" { // dependent objects: the detail names them
		what += ": " + pg.Detail
	}
	e := queue.NewError(queue.KindFailed, what, where+", SQLSTATE "+pg.Code, "").Because(pg)
	switch pg.Code {
	case "42501":
		e.Kind = queue.KindPermission
		e.Do = queue.Clean("run migrate up as a superuser, or as a role with CREATEROLE that owns the database; drop objects of other owners whose names qtop uses first")
	case "3F000":
		e.Do = queue.Clean("nothing was changed; qtop is installed in the schema public: as the owner of the database run CREATE SCHEMA public; then run the command again")
	case "2BP01":
		e.Do = queue.Clean("nothing was changed; drop or move what depends on it first")
	case "40P01", "40001", "55P03":
		e.Do = queue.Clean("run the command again: another session changed or held the same objects")
	}
	return e
}

// explainTrigger names the event trigger whose function raised an error of a migration, and how to go on. err is from
// explain.
func explainTrigger(ctx context.Context, conn *pgx.Conn, err error) error {
	var pg *pgconn.PgError
	e, ok := errors.AsType[*queue.Error](err)
	if !ok || !e.Do.Empty() || !errors.As(err, &pg) || pg.Where == "" {
		return err
	}
	type trigger struct{ Name, Function string }
	all, _ := pgrow.All[trigger](ctx, conn, `SELECT quote_ident(t.evtname), format('%I.%I(', n.nspname, p.proname)
		FROM pg_event_trigger t JOIN pg_proc p ON p.oid = t.evtfoid JOIN pg_namespace n ON n.oid = p.pronamespace WHERE t.evtenabled <> 'D' ORDER BY 1`)
	for _, t := range all {
		if strings.Contains(pg.Where, t.Function) {
			e.Where = queue.Clean(e.Where.String() + ", event trigger " + t.Name)
			e.Do = queue.Clean("nothing was changed; let its function accept this, or run ALTER EVENT TRIGGER " + t.Name + " DISABLE, then migrate up again, then ALTER EVENT TRIGGER " + t.Name + " ENABLE")
			break
		}
	}
	return err
}

// explainDown is like explain, for the steps of Down: no name of another owner can be in its way.
func explainDown(err error, where string) error {
	err = explain(err, where)
	if e, ok := errors.AsType[*queue.Error](err); ok && e.Kind == queue.KindPermission {
		e.Do = queue.Clean("nothing was changed; run migrate down as a superuser, or as a role with CREATEROLE that owns the database")
	}
	return err
}

func refuse(what, where, do string) error {
	return queue.NewError(queue.KindFailed, what, where, do)
}
