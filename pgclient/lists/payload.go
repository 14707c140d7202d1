package lists

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// payloadTimeout limits the masking of a payload, so that time remains for reading the rest of the
// page.
const payloadTimeout = pgpool.ReadTimeout / 2

// shownPayload is a payload in the form in which it is shown, or the reason why it is not shown.
type shownPayload struct {
	text, whyNot queue.Text
	size         int64
}

// payload returns the masked payload from fn_payload_masked, with numbers as stored, or the
// reason why there is none.
func payload(ctx context.Context, db *pgpool.Pool, kind, id string, whole bool) (out shownPayload, err error) {
	within, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	most := queue.PayloadShown
	if whole {
		most = 1 << 30
	}
	var raw *string
	var size *int64
	err = db.QueryRow(within, "SELECT left(p, $3), length(p)::bigint FROM (SELECT public.fn_payload_masked($1::text, $2::text)::text AS p OFFSET 0) s", kind, id, most).Scan(&raw, &size)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == "42501":
		out.whyNot = queue.Clean("this payload may not be read: " + pgerror.Translate(err).Error())
	case errors.As(err, &pg) && (pg.Code == "54000" || pg.Code == "57014"), err != nil && within.Err() != nil && ctx.Err() == nil:
		out.whyNot = queue.Clean("the secrets in this payload could not be masked in time, so it is not shown; V reveals it")
	case err != nil:
		return out, err
	case raw == nil:
		out.whyNot = queue.Clean("the payload is empty")
	default:
		out.text, out.size = queue.CleanLong(*raw), *size
	}
	return out, nil
}
