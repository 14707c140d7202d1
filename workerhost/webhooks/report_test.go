// Tests of results that the database refuses or another session delays.
package webhooks

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
	"github.com/qtop/qtop/workerhost/sender"
)

// claimedWorker returns a worker on a new database, three deliveries of one webhook subscription
// that it has claimed, and a pool of the database owner.
func claimedWorker(t *testing.T) (*Worker, *loop.Loop, []work.WebhookJob, *pgxpool.Pool) {
	t.Helper()
	db := pgtest.New(t)
	admin := db.Pool(t, "")
	for _, sql := range []string{
		"INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('x', 'http://h.example/', true, true)",
		"INSERT INTO public.events (event_type, payload) SELECT 'x', '{}' FROM generate_series(1, 3)",
	} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { // an event is not routed before the transactions of its neighbours have ended
		var n int
		_, err := admin.Exec(t.Context(), "SELECT public.fn_webhook_router_run()")
		if err == nil {
			_, err = admin.Exec(t.Context(), "SELECT public.fn_saga_orchestrator_run()")
		}
		if err == nil {
			err = admin.QueryRow(t.Context(), "SELECT count(*)::int FROM public.webhook_delivery_jobs").Scan(&n)
		}
		return err == nil && n == 3
	}, time.Minute, 10*time.Millisecond)
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: db.DSN(pgtest.Login(t, db, "webhook_worker")), WorkConns: 2})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	claimed, err := work.New(client).ClaimWebhooks(t.Context(), "x", 3, nil, 3, 0)
	require.NoError(t, err)
	require.Len(t, claimed, 3)
	log := slog.New(slog.DiscardHandler)
	w := &Worker{Client: work.New(client), Log: log, Every: func() time.Duration { return time.Second }, OnReported: func() {}}
	return w, loop.New("webhook_worker", "", log), claimed, admin
}

// The payload of a delivery cannot be read, for a permanent reason: the deliveries that wait behind
// it in this host are handed back.
func TestUnreadPayloadKeepsNoOthers(t *testing.T) {
	t.Parallel()
	w, l, claimed, _ := claimedWorker(t)
	d := &deliverer{Worker: w, l: l, slots: newSlots(1, 1), leases: &leases{Worker: w, l: l, leased: map[int64]*delivery{}}, requests: newRequests(w, l, 3)}
	now := time.Now()
	xs := d.leases.add(claim{jobs: claimed, sent: now, returned: now})
	d.slots.add(xs[0], now)
	require.Same(t, xs[0], d.slots.start(now))
	e := d.slots.endpoints[xs[0].endpoint]
	e.buffer = append(e.buffer, xs[1:]...) // as after some successes
	d.slots.buffered += 2
	d.requests.ended <- end{xs[0], false} // nothing was sent
	d.drainEnded(t.Context())
	require.Empty(t, d.leases.leased)
	again, err := w.Client.ClaimWebhooks(t.Context(), "x", 3, nil, 3, 0)
	require.NoError(t, err)
	require.Len(t, again, 2)
}

// The payload of a delivery is not read in time, for a reason that may pass: the delivery is handed back as one for which
// the host lacks something. If that lasts, it is a failed attempt in which nothing was sent.
func TestPayloadThatIsNotReadInTime(t *testing.T) {
	t.Parallel()
	w, l, claimed, admin := claimedWorker(t)
	w.Budget = lease.NewBudget()
	r := newRequests(w, l, 3)
	tx, err := admin.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "LOCK TABLE public.events IN ACCESS EXCLUSIVE MODE") // the read of the payload waits
	require.NoError(t, err)
	claimed[0].Payload = nil
	x := &delivery{WebhookJob: claimed[0], claimed: time.Now(), until: time.Now().Add(reportReserve + minTimeout + 2*time.Second)}
	r.send(t.Context(), x)
	require.Equal(t, end{x, false}, <-r.ended)
	require.Error(t, x.shortage)
	require.False(t, x.sent)
	require.Equal(t, queue.Said(x.shortage).String(), l.Status().LastErr.String())

	x = &delivery{WebhookJob: claimed[0], claimed: time.Now(), until: time.Now().Add(reportReserve + minTimeout + 2*time.Second)}
	res, sent := r.attempt(t.Context(), x)
	require.True(t, sent)
	require.Equal(t, sender.CodeProtocolError, res.Code)
	require.True(t, x.unreadable, "nothing was sent: it does not count against the endpoint")
}

// What the requests that ended meanwhile hand back is one statement: the loop claims and renews nothing while it runs.
func TestHandBackInOneStatement(t *testing.T) {
	t.Parallel()
	w, l, claimed, admin := claimedWorker(t)
	d := &deliverer{Worker: w, l: l, slots: newSlots(8, 8), leases: &leases{Worker: w, l: l, leased: map[int64]*delivery{}}, requests: newRequests(w, l, 3)}
	now := time.Now()
	for _, x := range d.leases.add(claim{jobs: claimed, sent: now, returned: now}) {
		require.True(t, d.slots.add(x, now))
		require.Same(t, x, d.slots.start(now))
		x.shortage = errors.New("no file descriptor")
		d.requests.ended <- end{x, false}
	}
	d.drainEnded(t.Context())
	require.Empty(t, d.leases.leased)
	require.Equal(t, []string{"Pending", "Pending", "Pending"}, states(t, admin))
	var statements int
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(DISTINCT xmin::text)::int FROM public.webhook_delivery_jobs").Scan(&statements))
	require.Equal(t, 1, statements)
}

// A result that the database refuses does not affect the other results of its batch, and a
// repeated report changes nothing. The request of the refused result was made, so its delivery is
// not handed back: its lease expires, which counts.
func TestReportBadResult(t *testing.T) {
	t.Parallel()
	w, l, claimed, admin := claimedWorker(t)
	r := newRequests(w, l, 3)
	status, code := 204, "NO_SUCH_CODE"
	xs := make([]*delivery, 3)
	for i, j := range claimed {
		xs[i] = &delivery{WebhookJob: j, until: time.Now().Add(time.Minute)}
		xs[i].report = work.WebhookReport{JobID: j.JobID, LeaseToken: j.LeaseToken, Delivered: true, Status: &status}
	}
	xs[1].report.Delivered, xs[1].report.Status, xs[1].report.Code = false, nil, &code
	r.results.Add(xs...)
	r.results.Close(time.Now().Add(time.Minute))
	require.Len(t, r.ended, 3)
	require.True(t, xs[0].settled.Load())
	require.False(t, xs[1].settled.Load())
	require.True(t, xs[2].settled.Load())
	out, err := w.Client.ReportWebhooks(context.Background(), []work.WebhookReport{{
		JobID: claimed[0].JobID, LeaseToken: claimed[0].LeaseToken, Delivered: true, Status: &status,
	}})
	require.NoError(t, err)
	require.Equal(t, "repeated", out[0].Outcome)
	s := &leases{Worker: w, l: l, leased: map[int64]*delivery{}}
	for _, x := range xs {
		s.leased[x.JobID] = x
	}
	s.handBack(t.Context())
	require.Equal(t, []string{"Completed", "Leased", "Completed"}, states(t, admin))
}

// states returns the status of all webhook jobs, by id.
func states(t *testing.T, admin *pgxpool.Pool) []string {
	t.Helper()
	rows, err := admin.Query(t.Context(), "SELECT status::text FROM public.webhook_delivery_jobs ORDER BY id")
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

// lock locks the row of a webhook job until the returned function is called.
func lock(t *testing.T, admin *pgxpool.Pool, job int64) (unlock func()) {
	t.Helper()
	tx, err := admin.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "SELECT FROM public.webhook_delivery_jobs WHERE id = $1 FOR UPDATE", job)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// A result whose row another session has locked delays no other, and the host goes on claiming; it
// is recorded when the lock is gone.
func TestLockedResultDelaysNoOther(t *testing.T) {
	t.Parallel()
	w, l, claimed, admin := claimedWorker(t)
	unlock := lock(t, admin, claimed[1].JobID)
	r := newRequests(w, l, 3)
	status := 204
	xs := make([]*delivery, 2)
	for i, j := range claimed[:2] {
		xs[i] = &delivery{WebhookJob: j, until: time.Now().Add(time.Minute)}
		xs[i].report = work.WebhookReport{JobID: j.JobID, LeaseToken: j.LeaseToken, Delivered: true, Status: &status}
	}
	r.results.Add(xs...)
	require.Eventually(t, xs[0].settled.Load, 30*time.Second, time.Millisecond)
	require.False(t, xs[1].settled.Load())
	require.False(t, r.results.Stuck())
	unlock()
	require.Eventually(t, xs[1].settled.Load, 30*time.Second, time.Millisecond)
	r.results.Close(time.Now().Add(time.Minute))
	require.Equal(t, []string{"Completed", "Completed", "Leased"}, states(t, admin))
}

// A delivery whose row another session has locked is handed back later, and delays no other.
func TestHandBackBesideALockedRow(t *testing.T) {
	t.Parallel()
	w, l, claimed, admin := claimedWorker(t)
	s := &leases{Worker: w, l: l, leased: map[int64]*delivery{}}
	now := time.Now()
	xs := s.add(claim{jobs: claimed, sent: now, returned: now})
	unlock := lock(t, admin, xs[1].JobID)
	require.True(t, s.release(t.Context(), xs))
	require.Equal(t, []string{"Pending", "Leased", "Pending"}, states(t, admin))
	require.Equal(t, []*delivery{xs[1]}, s.unreleased)
	s.retryRelease(t.Context())
	require.Equal(t, []*delivery{xs[1]}, s.unreleased)
	unlock()
	s.retryRelease(t.Context())
	require.Empty(t, s.unreleased)
	require.Equal(t, []string{"Pending", "Pending", "Pending"}, states(t, admin))

	again, err := w.Client.ClaimWebhooks(t.Context(), "x", 3, nil, 3, 0)
	require.NoError(t, err)
	xs = s.add(claim{jobs: again, sent: now, returned: now})
	unlock = lock(t, admin, xs[1].JobID)
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.handBack(t.Context()) }()
	require.Eventually(t, func() bool { return slices.Equal(states(t, admin), []string{"Pending", "Leased", "Pending"}) }, time.Minute, time.Millisecond)
	unlock()
	<-stopped
	if len(s.unreleased) > 0 { // on a slow machine the time of the stop was over before
		s.handBack(t.Context())
	}
	require.Equal(t, []string{"Pending", "Pending", "Pending"}, states(t, admin))
}

// The server searches the texts of results for secrets, so long texts are recorded in several
// statements.
func TestLongExcerptsInSeveralStatements(t *testing.T) {
	t.Parallel()
	w, l, claimed, _ := claimedWorker(t)
	statements := 0
	w.OnReported = func() { statements++ }
	r := newRequests(w, l, 3)
	status := 204
	for _, j := range claimed {
		x := &delivery{WebhookJob: j, until: time.Now().Add(time.Minute)}
		x.report = work.WebhookReport{JobID: j.JobID, LeaseToken: j.LeaseToken, Delivered: true, Status: &status, Excerpt: strings.Repeat("x ", 20<<10)}
		r.results.Add(x)
	}
	r.results.Close(time.Now().Add(time.Minute))
	require.Equal(t, 3, statements)
}
