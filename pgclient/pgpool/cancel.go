package pgpool

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// cancelWithin is how long a cancelled statement may take to end; after that its connection is
// closed.
const cancelWithin = 2 * time.Second

// CancelRead returns the handler that ends the running statement of a connection when the context
// of the caller ends. If the caller no longer wants the answer, the handler sends a cancel request
// and the connection stays open. If the caller's deadline has passed, the handler closes the
// connection: a server or network that did not answer in time does not answer a cancel request
// either.
func CancelRead(conn *pgconn.PgConn) ctxwatch.Handler {
	return &cancelRead{
		request: &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelWithin},
		overdue: &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()},
	}
}

type cancelRead struct {
	request, overdue ctxwatch.Handler
	chosen           ctxwatch.Handler // the handler for the way in which the context ended
}

// HandleCancel is called when the context ends.
func (c *cancelRead) HandleCancel(ctx context.Context) {
	c.chosen = c.request
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.chosen = c.overdue
	}
	c.chosen.HandleCancel(ctx)
}

// HandleUnwatchAfterCancel is called when the statement has ended.
func (c *cancelRead) HandleUnwatchAfterCancel() { c.chosen.HandleUnwatchAfterCancel() }
