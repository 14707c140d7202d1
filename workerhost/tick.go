package workerhost

// This file drives one tick worker: by its interval as the floor, at once when
// something woke it. The database decides whether it is due.

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/qtop/qtop/pgclient"
)

// minGap is the least time between two ticks, whatever asks for them.
const minGap = 10 * time.Millisecond

// fullBatch is the row limit of the SQL workers: a tick that met it has more.
const fullBatch = 1000

func (h *Host) tickLoop(ctx context.Context, l *loop) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	drain := l.draining()
	again := false // a look that found the lease held, or rows that were held back
	held := time.Duration(0)
	overdue := minGap // doubles while what this clock calls due is not due over there
	for {
		source := "external"
		select {
		case <-ctx.Done():
			return nil
		case <-drain:
			return nil
		case <-l.kick:
			source = "wake"
		case <-timer.C:
			if again {
				source = "wake" // its interval has not passed, and need not
			}
		}
		again = false
		started := time.Now()
		next := h.settings.every(l.name)
		worked := false
		res, err := h.client.Tick(ctx, l.name, source)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			l.erred(err)
			h.log.Warn("tick failed", "loop", l.name, "error", err.Error())
		case res.Failed:
			l.erred(fmt.Errorf("%s", res.Error))
			h.log.Error("tick worker failed", "loop", l.name, "error", res.Error)
		default:
			l.ticked(res.Work(), next)
			worked = res.Work() > 0
			h.handOn(l, res)
			held = soonAgain(res, source, held)
			if held > 0 {
				held = min(next, held)
				again, next = true, held
			}
			if due, known := nextDue(res); known {
				overdue = min(2*overdue, time.Minute)
				if left := time.Until(due); left > 0 || res.Result["promoted"] > 0 {
					overdue = minGap
				}
				if left := max(time.Until(due), overdue); left < next {
					again, next = true, left
				}
			}
		}
		l.looked(worked)
		select {
		case <-time.After(time.Until(started.Add(minGap))):
		case <-ctx.Done():
			return nil
		}
		timer.Reset(next)
	}
}

// soonAgain is when to look again before the interval has passed, 0 = not: when
// whoever holds the lease may have looked before the row came, and when rows are
// held back behind an open transaction, of which nothing will tell when it ends.
// It doubles from 20 ms, so that a transaction open for hours costs no more than
// the interval does.
func soonAgain(res pgclient.TickResult, source string, before time.Duration) time.Duration {
	switch {
	case res.Skipped == "lease_held" && source == "wake":
		return 100 * time.Millisecond
	case res.Result["held"] > 0:
		return max(2*before, 20*time.Millisecond)
	}
	return 0
}

// nextDue is when the next late work falls due, by the server's clock.
func nextDue(res pgclient.TickResult) (time.Time, bool) {
	var body struct {
		Result struct {
			NextDue *time.Time `json:"next_due"`
		} `json:"result"`
	}
	if len(res.Raw) == 0 || json.Unmarshal(res.Raw, &body) != nil || body.Result.NextDue == nil {
		return time.Time{}, false
	}
	return *body.Result.NextDue, true
}

// handOn kicks the loop that has the next step, inside this process.
func (h *Host) handOn(l *loop, res pgclient.TickResult) {
	for _, n := range res.Result {
		if n >= fullBatch {
			l.kickNow()
		}
	}
	switch l.name {
	case loopRoutes, loopStaging:
		if res.Result["jobs"] > 0 {
			h.kick(loopJobs)
		}
	case loopRouter:
		if res.Result["sagas"] > 0 {
			h.kick(loopOrchestrator)
		}
	case loopOrchestrator:
		if res.Result["jobs_created"] > 0 {
			h.kick(loopWebhook)
		}
	case loopDue:
		if res.Result["promoted"] > 0 {
			h.kick(loopJobs)
		}
	case loopReaper:
		if res.Result["returned"] > 0 {
			h.kick(loopJobs)
		}
	case loopBulk:
		if res.Result["done"] > 0 { // its brake looks at how the first tries end: soon
			h.kick(loopOrchestrator)
			h.kick(loopJobs)
		}
	case "lease_reset_cleaner":
		if res.Result["reset"] > 0 {
			h.kick(loopWebhook)
		}
		if res.Result["failed"] > 0 {
			h.kick(loopOrchestrator)
		}
	}
}
