package jobs

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// watermarkEvery is how often a host asks the database to move the watermarks of the queue lanes.
const watermarkEvery = time.Second

// watermarks asks the database to move the watermarks of the queue lanes, so that claims need not read
// the dead rows that an old snapshot keeps. Without it claims are slower there and nothing else.
// Only the owner of the loop uses it.
type watermarks struct {
	*state
	askedAt time.Time
	asking  atomic.Bool
	missing atomic.Bool // the database is of an older release
}

// advance asks in the background, when that is due.
func (f *watermarks) advance(ctx context.Context) {
	if f.missing.Load() || time.Since(f.askedAt) < watermarkEvery || !f.asking.CompareAndSwap(false, true) {
		return
	}
	f.askedAt = time.Now()
	f.background.Go(func() {
		defer f.asking.Store(false)
		err := f.Client.JobWatermarkAdvance(ctx)
		var pg *pgconn.PgError
		switch {
		case errors.As(err, &pg) && pg.Code == "42883":
			f.missing.Store(true)
		case err != nil && ctx.Err() == nil:
			f.l.Log.Warn("could not move the watermarks of the queue lanes: claims may be slow beside an open transaction", "error", err.Error())
		}
	})
}
