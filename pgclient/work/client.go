// Package work has the database calls of a worker host. Start with [New]; a [Client] can:
//
//   - register a host and send its heartbeats (HostRegister, HostHeartbeat, HostStop);
//   - request a run of a tick worker (Tick), and record the heartbeat of the webhook worker (WebhookHeartbeat);
//   - claim, start, renew, acknowledge, fail and release jobs of the queue (Job…);
//   - claim, renew, report and release webhook jobs (…Webhooks).
//
// Every result is fenced by the token of its lease, and reporting or releasing a job twice is
// safe. That matters because the reply to a commit can be lost. The statements go through the
// pool pgclient.Options.WorkConns.
package work

import (
	"context"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

// Client calls the functions of the schema for a worker host.
type Client struct {
	pool  *pgpool.Pool
	tag   func() string
	ticks chan struct{} // one value per call of Tick that has a connection, or waits for one
}

// New returns a client that uses the worker host's pool: see pgclient.Options.WorkConns, which must
// not be 0. Ticks leave a quarter of its connections, and at least one of several, to the rest of
// the host: a tick may wait for a locked table for as long as statement_timeout allows.
func New(c *pgclient.Client) *Client {
	conns := int(c.Work().Config().MaxConns)
	return &Client{c.Work(), c.SessionTag, make(chan struct{}, max(1, conns-max(1, conns/4)))}
}

// call runs a jsonb function on the work pool and returns its refusal, if any.
func (c *Client) call(ctx context.Context, sql string, args ...any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	var r pgscan.Refusal
	err := c.pool.QueryRow(ctx, sql, args...).Scan(&r)
	return said(r.Reason), pgerror.Translate(err)
}

// said makes a text of the database safe for a log, /readyz and a screen, with passwords masked.
func said(text string) string { return queue.Clean(pgerror.Mask(text)).String() }

// Registered is the answer to the registration of a host.
type Registered struct {
	pgscan.Refusal // Reason is empty if this host now holds its id

	// Holder is the instance that holds the id instead of this host. LastSeen is its last sign of
	// life: a value that changes whenever that instance is seen again.
	Holder   string `json:"holder"`
	LastSeen string `json:"last_seen_at"`

	// Returned counts the work that the previous, crashed instance held and that anyone can
	// claim again.
	Returned struct {
		Jobs     int64    `json:"jobs"`
		Webhooks int64    `json:"webhooks"`
		Log      Outcomes `json:"log"`
	} `json:"returned"`
}

// HostRegister registers a host.
func (c *Client) HostRegister(ctx context.Context, id, instance, version string, loops []string) (r Registered, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	err = c.pool.QueryRow(ctx, "SELECT public.fn_queue_host_register($1::text, $2::uuid, $3::text, $4::text[], NULLIF($5::text, ''))",
		id, instance, version, loops, c.tag()).Scan(&r)
	r.Reason = said(r.Reason)
	return r, pgerror.Translate(err)
}

// HostHeartbeat sends a heartbeat of the host and returns the server's time. A non-empty refusal says
// that another instance now holds the id.
func (c *Client) HostHeartbeat(ctx context.Context, id, instance string, loops []string, inFlight int, progress map[string]queue.LoopMark) (at time.Time, refusal string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	var r struct {
		pgscan.Refusal
		At time.Time `json:"at"`
	}
	err = c.pool.QueryRow(ctx, "SELECT public.fn_queue_host_beat($1::text, $2::uuid, $3::text[], $4::int, $5::jsonb)", id, instance, loops, inFlight, progress).Scan(&r)
	return r.At, said(r.Reason), pgerror.Translate(err)
}

// ClockStepped records in the history that the server's clock was set forward by this much; a
// negative value means back.
func (c *Client) ClockStepped(ctx context.Context, id, instance string, by time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	_, err := c.pool.Exec(ctx, "SELECT public.fn_queue_clock_stepped($1::text, $2::uuid, $3::float8)", id, instance, by.Seconds())
	return pgerror.Translate(err)
}

// HostStop records that the host stopped cleanly, and why: a signal, or the operator who stopped
// it.
func (c *Client) HostStop(ctx context.Context, id, instance, reason string) error {
	_, err := c.call(ctx, "SELECT public.fn_queue_host_stop($1::text, $2::uuid, $3::text)", id, instance, reason)
	return err
}
