package pgpool

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// cancelWithin is how long a cancelled statement may take to end before its connection is closed.
const cancelWithin = 2 * time.Second

// CancelRead returns the handler that ends the statement of a connection when the context of its
// caller ends. A caller that no longer wants the answer sends a cancel request, and the connection
// lives on. A caller whose deadline has passed closes the connection: a server or a network that
// did not answer in time does not answer a cancel request either.
func CancelRead(conn *pgconn.PgConn) ctxwatch.Handler {
	return &cancelRead{
		request: &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelWithin},
		overdue: &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()},
	}
}

type cancelRead struct {
	request, overdue ctxwatch.Handler
	chosen           ctxwatch.Handler // for the context that has ended
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
