package pgclient

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

// Snapshot reads the snapshot that all consoles share. It is at most maxAge old, except while
// another session computes a new one; 0 = compute a new one.
//
// It needs queue_viewer. Without it there is no error: what this login may not read is left out,
// and so is what is not installed; the field Missing names each section
// with the reason, all where nothing may be read.
func (c *Client) Snapshot(ctx context.Context, maxAge time.Duration) (s queue.Snapshot, err error) {
	err = c.reading(ctx, func() error {
		s, err = c.snapshot(ctx, maxAge)
		return err
	})
	return s, err
}

func (c *Client) snapshot(ctx context.Context, maxAge time.Duration) (queue.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	var body []byte
	var s queue.Snapshot
	var self server
	conn, err := c.read.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = conn.QueryRow(ctx, "SELECT taken_at, took_ms::float8, shared, body, "+serverColumns+
			" FROM public.fn_queue_picture(make_interval(secs => $1))", maxAge.Seconds()).
			Scan(&s.TakenAt, &s.TookMS, &s.Shared, &body, &self.cluster, &self.address, &self.port)
	}
	var pg *pgconn.PgError
	var refused *queue.Error
	switch {
	case errors.Is(err, errMisfit) && errors.As(err, &refused):
		return c.bareSnapshot(ctx, refused)
	case pgerror.NoFunction(err):
		return c.bareSnapshot(ctx, queue.NewError(queue.KindFailed, "fn_queue_snapshot is not installed", "", "run qtop migrate up"))
	case conn != nil && errors.As(err, &pg) && pg.Code == "42501":
		conn.Release()
		if errors.As(pgerror.Translate(c.read.Explain(err)), &refused) {
			return c.bareSnapshot(ctx, refused)
		}
	}
	if err != nil {
		return s, pgerror.Translate(err)
	}
	err = decodeSnapshot(body, &s)
	s.Server.Unexpected = queue.Clean(self.unexpected(c.opts.ExpectServer))
	c.answered(conn.Conn(), self, &s.Server)
	return s, err
}

// SnapshotAt reads a stored snapshot: for steps = 0 the last one at or before the time, for -n the
// n-th before that one (or the oldest), for n the n-th after it. If there is none, the result is an
// empty snapshot. first is the time of the oldest stored snapshot, zero if there is none.
func (c *Client) SnapshotAt(ctx context.Context, at time.Time, steps int) (s queue.Snapshot, first time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	var taken, oldest *time.Time
	var took *float64
	var body []byte
	err = c.reading(ctx, func() error {
		return pgerror.Translate(c.read.QueryRow(ctx, "SELECT taken_at, took_ms::float8, body, first_at FROM public.fn_queue_picture_at($1::timestamptz, $2::int)", at, steps).
			Scan(&taken, &took, &body, &oldest))
	})
	if err != nil {
		return s, first, err
	}
	if oldest != nil {
		first = *oldest
	}
	if taken == nil {
		return s, first, nil
	}
	s.TakenAt, s.TookMS, s.Shared = *taken, *took, true
	return s, first, decodeSnapshot(body, &s)
}

// decodeSnapshot decodes the sections of a snapshot into s.
func decodeSnapshot(body []byte, s *queue.Snapshot) error {
	if err := pgscan.Unmarshal(body, s); err != nil {
		return queue.NewError(queue.KindFailed, pgerror.Mask("the snapshot cannot be read: "+err.Error()), "", "the schema does not fit this program: run qtop migrate status")
	}
	for i := range s.Queues {
		if s.Queues[i].OldestAt == nil {
			s.Queues[i].AgeSeconds = nil // NULL means that no job is due; SQL returns 0
		}
		s.Queues[i].WhyCode = queue.WhyCode(s.Queues[i].Why.String())
	}
	for i := range s.Waiting {
		s.Waiting[i].WhyCode = queue.WhyCode(s.Waiting[i].Why.String())
	}
	forgetRegistrations(s)
	return nil
}

// forgetRegistrations removes the time of the last heartbeat of executors that have never sent one.
// From that time the database counts their silence: it is when the executor was registered, or when
// its tick worker was switched on.
func forgetRegistrations(s *queue.Snapshot) {
	idle := map[queue.Text]bool{} // tick workers that never ran
	for _, t := range s.Ticks {
		idle[t.Name] = t.LastRunAt == nil
	}
	never := map[queue.Text]bool{}
	for i := range s.Executors {
		x := &s.Executors[i]
		switch {
		case x.LastBeatAt == nil:
		case x.TickWorker && idle[x.ID] && x.DoneTotal == nil: // the first heartbeat of a tick worker has a total
			x.LastBeatAt = nil
		case !x.TickWorker && x.InstanceID.Empty() && x.LastBeatAt.Sub(x.RegisteredAt).Abs() < time.Second:
			x.LastBeatAt = nil
		}
		if x.LastBeatAt == nil {
			x.AgeSeconds, never[x.ID] = nil, true
		}
	}
	for i := range s.Health {
		if h := &s.Health[i]; h.Source.String() == "heartbeat" && never[h.Subject] {
			h.LastSeenAt, h.AgeSeconds = nil, nil
		}
	}
}

// bareSnapshot returns what can be shown of a server without the schema, or with a schema that
// this login may not read: the server's identity, and what is missing.
func (c *Client) bareSnapshot(ctx context.Context, refused *queue.Error) (queue.Snapshot, error) {
	s := queue.Snapshot{Refused: refused, Missing: map[string]queue.Text{"all": queue.Clean(refused.What.String() + ": " + refused.Do.String())}}
	conn, err := c.look.Acquire(ctx)
	if err != nil {
		return s, pgerror.Translate(err)
	}
	defer conn.Release()
	var self server
	err = conn.QueryRow(ctx, `SELECT now(), current_setting('server_version'), current_database(), pg_is_in_recovery(), `+serverColumns).
		Scan(&s.TakenAt, &s.Server.Version, &s.Server.Database, &s.Server.InRecovery, &self.cluster, &self.address, &self.port)
	c.answered(conn.Conn(), self, &s.Server)
	return s, pgerror.Translate(err)
}

// answered reads which server is at the other end of a connection.
func (c *Client) answered(conn *pgx.Conn, self server, s *queue.Server) {
	s.Address = c.address(conn)
	if c.route.Pooled() {
		s.Behind = queue.Clean(self.name())
	}
}
