// Package work is what a worker host asks of the database: to be announced, to tick,
// to claim, report and hand back jobs of both kinds.
package work

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

// Client is what a worker host asks with.
type Client struct {
	pool *pgpool.Pool
	tag  func() string
}

// New makes one that uses the pool of the worker host: see pgclient.Options.WorkConns.
func New(c *pgclient.Client) *Client { return &Client{c.Work(), c.SessionTag} }

// call runs a jsonb function on the work pool and returns its refusal, if any.
func (c *Client) call(ctx context.Context, sql string, args ...any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	var r pgscan.Refusal
	err := c.pool.QueryRow(ctx, sql, args...).Scan(&r)
	return r.Reason, pgerror.Translate(err)
}

// HostRegister announces a host; a non-empty string is the refusal. Where another
// instance holds the id, sign is that and when it was last seen: it changes when that
// one gives a sign of life.
func (c *Client) HostRegister(ctx context.Context, id, instance, version string, loops []string) (refusal, sign string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	var r struct {
		pgscan.Refusal
		Holder   string `json:"holder"`
		LastSeen string `json:"last_seen_at"`
	}
	err = c.pool.QueryRow(ctx, "SELECT public.fn_queue_host_register($1::text, $2::uuid, $3::text, $4::text[], NULLIF($5::text, ''))",
		id, instance, version, loops, c.tag()).Scan(&r)
	if r.Holder != "" {
		sign = r.Holder + " " + r.LastSeen
	}
	return r.Reason, sign, pgerror.Translate(err)
}

// HostBeat is a sign of life; a non-empty string says that the id was lost.
func (c *Client) HostBeat(ctx context.Context, id, instance string, loops []string, inFlight int, progress map[string]queue.LoopMark) (string, error) {
	return c.call(ctx, "SELECT public.fn_queue_host_beat($1::text, $2::uuid, $3::text[], $4::int, $5::jsonb)", id, instance, loops, inFlight, progress)
}

// HostStop says that the host ended cleanly, and why: a signal, or who asked for it.
func (c *Client) HostStop(ctx context.Context, id, instance, reason string) error {
	_, err := c.call(ctx, "SELECT public.fn_queue_host_stop($1::text, $2::uuid, $3::text)", id, instance, reason)
	return err
}
