package pgclient

// This file reads payloads: masked for whoever looks, and revealed, which is an
// action: its audit row is committed before anything is shown.

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// payloadTimeout leaves the rest of a page its time where a payload takes long to
// mask.
const payloadTimeout = pgpool.ReadTimeout / 2

// payloadOf is how fn_payload_masked and fn_payload_reveal name what a list names
// by this id: a letter, or a job by its bare uuid.
func payloadOf(id string) (kind, key string, err error) {
	switch id = strings.TrimSpace(id); {
	case isJobLetter(id):
		key, err = uuidOf(id, "job dead letter", jobPrefix)
		return "job_dead_letter", key, err
	case isEventLetter(id):
		key, err = uuidOf(id, "event dead letter", eventPrefix)
		return "event_dead_letter", key, err
	case uuidForm.MatchString(id):
		return "job", strings.ToLower(id), nil
	}
	_, err = webhookID(id)
	return "dead_letter", id, err
}

// carried is a payload as it is shown.
type carried struct {
	text, whyNot queue.Text
	size         int64
}

// payload is what fn_payload_masked gives, with the numbers as stored, or why
// there is none.
func (c *Client) payload(ctx context.Context, kind, id string, whole bool) (out carried, err error) {
	within, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	most := queue.PayloadShown
	if whole {
		most = 1 << 30
	}
	var raw *string
	var size *int64
	err = c.read.QueryRow(within, "SELECT left(p, $3), length(p)::bigint FROM (SELECT public.fn_payload_masked($1::text, $2::text)::text AS p OFFSET 0) s", kind, id, most).Scan(&raw, &size)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "42501":
		out.whyNot = queue.Clean("this login may not read payloads: it needs the role queue_viewer")
	case errors.As(err, &pg) && (pg.Code == "54000" || pg.Code == "57014"), err != nil && within.Err() != nil && ctx.Err() == nil:
		out.whyNot = queue.Clean("its secrets could not be masked in time, so it is not shown; V reveals it")
	case err != nil:
		return out, err
	case raw == nil:
		out.whyNot = queue.Clean("the payload is empty")
	default:
		out.text, out.size = queue.CleanLong(*raw), *size
	}
	return out, nil
}

func planReveal(ctx context.Context, c *Client, p *queue.Plan) error {
	if len(p.Request.Targets) != 1 {
		return &queue.Error{Kind: queue.KindUsage, What: queue.Clean("one payload is revealed at a time"), Do: queue.Clean("name one id")}
	}
	kind, key, err := payloadOf(p.Request.Targets[0])
	if err != nil {
		return err
	}
	from := map[string]string{
		"dead_letter": "public.dead_letters WHERE id = $1::text::bigint", "job_dead_letter": "public.job_dead_letter WHERE dead_letter_id = $1::text::uuid",
		"event_dead_letter": "public.iu_route_dead_letter WHERE dead_letter_id = $1::text::uuid", "job": "public.v_job WHERE job_id = $1::text::uuid",
	}[kind]
	there := true
	err = c.act.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM "+from+")", key).Scan(&there)
	var pg *pgconn.PgError
	if err != nil && !(errors.As(err, &pg) && pg.Code == "42501") { // a role may reveal what it may not look for
		return err
	}
	if !there {
		p.Refused, p.Rule = "there is nothing with the id "+p.Request.Targets[0], "not_found"
		return nil
	}
	p.Count = 1
	p.Lines = append(p.Lines,
		line("payload of", "%s", p.Request.Targets[0]),
		line("shown", "with its secrets, on this screen alone, for %s", queue.RevealFor),
		line("audit", "your name, the time and the reason, before anything is shown"))
	return nil
}

func applyReveal(ctx context.Context, c *Client, p queue.Plan, res *queue.Result) error {
	id := p.Request.Targets[0]
	kind, key, err := payloadOf(id)
	if err != nil {
		return err
	}
	var a answer
	var payload *string
	most := queue.PayloadShown + 1 // one more than is shown: so it is seen that there is more
	if p.Request.Whole {
		most = 1 << 30
	}
	// A statement of its own: it is committed, and with it the audit row, before
	// anything of the payload is shown.
	if err := c.act.QueryRow(ctx, `SELECT s.r - 'payload'::text, left((s.r -> 'payload'::text)::text, $5::int)
		FROM (SELECT public.fn_payload_reveal($1::text, $2::text, $3::text, $4::text) AS r OFFSET 0) s`,
		kind, key, p.Request.Actor, p.Request.Reason, most).Scan(&a, &payload); err != nil {
		return err
	}
	one(res, id, "revealed", a)
	if res.Refused == "" && payload != nil {
		res.Payload = queue.CleanLong(*payload) // as it came: digits stay as they are
	}
	return nil
}
