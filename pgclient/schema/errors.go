package schema

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

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
