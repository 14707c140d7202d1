package pgclient

import (
	"context"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

// Heartbeat writes one heartbeat of a registered executor. payload is a JSON object with the keys
// state (working, idle, stopped), done_total, in_flight and last_work_at, all optional. It returns
// the server's time of the heartbeat, or in refused the reason why the database refused it.
func (c *Client) Heartbeat(ctx context.Context, id, payload string) (at, refused string, err error) {
	if err := queue.CheckActor(c.Actor()); err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	var a struct {
		pgscan.Refusal
		At string `json:"last_beat_at"`
	}
	err = c.act.QueryRow(ctx, "SELECT public.fn_queue_heartbeat_write($1::text, $2::jsonb, $3::text)", id, payload, c.Actor()).Scan(&a)
	return a.At, a.Reason, pgerror.InWords(pgerror.Translate(err), queue.Arg{Name: "payload"})
}
