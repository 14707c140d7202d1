package jobs

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
)

// watermarkEvery is how often a host asks the database to move the watermarks of the queue lanes.
const watermarkEvery = time.Second

// watermarks asks the database to move the watermarks of the queue lanes, so that claims need not
// read the dead rows that an old snapshot keeps. If the request fails, claims are slower behind
// an old snapshot; nothing else changes. Only the owner of the loop uses watermarks.
type watermarks struct {
	*state
	cancel  context.CancelFunc // of the call in progress; nil = none yet
	askedAt time.Time
	asking  atomic.Bool
	missing atomic.Bool // the database is of an older release and has no such function
}

// advance moves the watermarks in the background, when watermarkEvery has passed.
func (f *watermarks) advance(ctx context.Context) {
	if f.missing.Load() || time.Since(f.askedAt) < watermarkEvery || !f.asking.CompareAndSwap(false, true) {
		return
	}
	f.askedAt = time.Now()
	ctx, cancel := context.WithCancel(ctx)
	f.cancel = cancel
	f.background.Go(func() {
		defer f.asking.Store(false)
		defer cancel()
		err := f.Client.JobWatermarkAdvance(ctx)
		switch {
		case pgerror.NoFunction(err):
			f.missing.Store(true)
		case err != nil && ctx.Err() == nil:
			f.l.Log.Warn("could not move the watermarks of the queue lanes: claims may be slow beside an open transaction", "error", err.Error())
		}
	})
}

// stop cancels the call in progress, which may take minutes: a loop that ends does not wait for it.
func (f *watermarks) stop() {
	if f.cancel != nil {
		f.cancel()
	}
}
