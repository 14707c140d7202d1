package pgclient

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// errMisfit is the cause of a refused connection: its database has no schema that
// this program can use.
var errMisfit = errors.New("the schema does not fit")

// fits refuses a connection on which a statement could call an object that is not qtop's. use is
// the pool: only read and act are checked; a worker host checks the schema when it registers. If
// the schema of this program is installed, each call finds qtop's function. If the schema is
// missing or older, another login may have made an object under a name that the schema lacks: then
// no action runs, and reading is allowed only if an older schema is installed and no such object
// exists; why then says what is installed, and the remedy.
func fits(ctx context.Context, conn *pgx.Conn, use string) (why *queue.Error, err error) {
	if use != "read" && use != "act" {
		return nil, nil
	}
	e := misfit(ctx, conn)
	if e == nil {
		return nil, nil
	}
	if e.Err != nil { // the server did not answer
		return nil, e.Err
	}
	refused := *e
	refused.Err = errMisfit
	if use == "act" || !schema.Installed(ctx, conn) {
		return nil, &refused
	}
	strange, err := schema.ForeignName(ctx, conn)
	if err != nil {
		return nil, err
	}
	if strange == "" {
		return e, nil
	}
	refused.What = queue.Clean(e.What.String() + ", and " + strange)
	return nil, &refused
}

// misfit returns the reason why this program cannot use the installed schema; nil = it can.
func misfit(ctx context.Context, conn *pgx.Conn) *queue.Error {
	e := &queue.Error{Kind: queue.KindFailed, Where: queue.Clean("database " + conn.Config().Database)}
	st, err := schema.GetStatus(ctx, conn)
	var refused *queue.Error
	if errors.As(err, &refused) { // the error already says what is wrong
		return refused
	}
	if err != nil {
		e.What, e.Err = queue.Clean("the schema version cannot be read"), err
		return e
	}
	what, do := st.Refusal()
	if what == "" {
		return nil
	}
	e.What, e.Do = queue.Clean(what), queue.Clean(do)
	return e
}
