package pgclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/queue"
)

// ErrSlow is the cause of the error of a call that took too long although the server answers on another
// connection: the connection is not lost.
var ErrSlow = errors.New("the call took too long, and the server answers others")

const (
	lookAfter  = 3 * time.Second         // a call that takes longer may wait for a lock
	lookWithin = 1500 * time.Millisecond // before the call itself ends
)

// holder returns the session that a session with this application_name waits for: of a chain of
// sessions that wait for each other, the one that waits for none.
const holder = `WITH RECURSIVE a AS MATERIALIZED (SELECT * FROM public.fn_queue_activity()),
	chain AS (SELECT u.pid, 1 AS depth FROM a, unnest(a.blocked_by) u (pid)
			WHERE a.program = $1::text AND a.login = session_user::text
		UNION SELECT u.pid, c.depth + 1 FROM chain c JOIN a ON a.pid = c.pid, unnest(a.blocked_by) u (pid)
			WHERE c.depth < 10)
	SELECT a.kind, COALESCE(a.pid, 0), a.login, a.program, a.transaction_since,
		COALESCE(date_part('epoch', clock_timestamp() - a.transaction_since), 0)::bigint
	FROM chain JOIN a ON COALESCE(a.pid, 0) = chain.pid
	ORDER BY a.blocked_by = '{}'::int[] DESC, a.transaction_since LIMIT 1`

// Watch looks, while a call on the connections of one use ("read", "act") takes long, on another
// connection for what it waits. The function that it returns must be called with the error of the call.
// If the call took too long and the server answered meanwhile, it returns an error with the cause ErrSlow
// that names who holds the lock, or says that the server needs longer than the call may take.
func (c *Client) Watch(ctx context.Context, use string) (end func(error) error) {
	began := time.Now()
	what := ""
	asked := make(chan struct{})
	look := func() {
		defer close(asked)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookWithin)
		defer cancel()
		what = c.waitsFor(ctx, use)
	}
	timer := time.AfterFunc(lookAfter, look)
	return func(err error) error {
		early := timer.Stop()
		if !tookTooLong(err) || errors.Is(ctx.Err(), context.Canceled) {
			return err
		}
		if early {
			look()
		}
		<-asked
		if what == "" {
			return err
		}
		cause := ErrSlow
		if pgerror.WaitedForLock(err) { // whose caller may look for it
			cause = errors.Join(ErrSlow, err)
		}
		return queue.NewError(queue.KindUnavailable, fmt.Sprintf("no result after %s: %s", queue.DurationText(time.Since(began).Round(100*time.Millisecond)), what), "",
			"see Activity (gl) or qtop activity").Because(cause)
	}
}

// waitsFor says what a session for this use waits for; "" if the server does not answer.
func (c *Client) waitsFor(ctx context.Context, use string) string {
	var kind, login, program string
	var pid, age int64
	var since *time.Time
	err := c.look.QueryRow(ctx, holder, c.program(use)).Scan(&kind, &pid, &login, &program, &since, &age)
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.As(err, &pg) && !pgerror.MayHaveCommitted(err): // without a right to see it
		return "the server answers, but is slow"
	case err != nil:
		return ""
	}
	who := fmt.Sprintf("session %d (%s)", pid, login)
	if kind == "prepared" {
		who = fmt.Sprintf("%s (%s)", program, login)
	} else if program != "" {
		who = fmt.Sprintf("session %d (%s, %s)", pid, login, program)
	}
	text := "waits for a lock that " + who + " holds"
	if since != nil {
		text += ", whose transaction is open since " + queue.Stamp(*since, "15:04:05Z") + " (" + queue.Span(age) + ")"
	}
	return text
}

// tookTooLong reports whether a call failed because it took too long, for itself or for its statement.
func tookTooLong(err error) bool {
	var pg *pgconn.PgError
	return errors.Is(err, context.DeadlineExceeded) || pgerror.WaitedForLock(err) || errors.As(err, &pg) && pg.Code == "57014"
}
