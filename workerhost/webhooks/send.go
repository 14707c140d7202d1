package webhooks

// This file is one request, from its claimed job to the result in the database.

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
	"github.com/qtop/qtop/workerhost/sender"
)

// end is that of a request, then that of its result: recorded, or beyond hope.
type end struct {
	x      *delivery
	result bool
}

// requests are those under way and their results.
type requests struct {
	*Worker
	ended   chan end // twice as large as leases can get: a send never blocks
	results *lease.Results[*delivery]
	sending sync.WaitGroup
}

// newRequests serves at most so many deliveries.
func newRequests(w *Worker, l *loop.Loop, most int) *requests {
	r := &requests{Worker: w, ended: make(chan end, 2*most)}
	r.results = lease.NewResults(1, lease.Recorder[*delivery]{
		Record: func(ctx context.Context, batch []*delivery) error { return r.record(ctx, l, batch) },
		Lasts:  func(x *delivery, wait time.Duration) bool { return x.left() > wait },
		Lost: func(batch []*delivery, err error) {
			w.Log.Error("results could not be recorded; the leases will expire and the jobs be sent again", "jobs", len(batch), "error", err.Error())
			r.over(batch)
		},
		Erred: l.Erred,
		Plain: func(x *delivery) { x.report.Excerpt = "" },
	})
	return r
}

// record settles a batch.
func (r *requests) record(ctx context.Context, l *loop.Loop, batch []*delivery) error {
	reports := make([]work.WebhookReport, len(batch))
	for i, x := range batch {
		reports[i] = x.report
	}
	out, err := r.Client.ReportWebhooks(ctx, reports)
	if err != nil {
		return err
	}
	lost := map[int64]bool{}
	for _, o := range out {
		lost[o.JobID] = o.Outcome == "lease_lost"
	}
	n := int64(0)
	for _, x := range batch {
		x.settled.Store(true)
		if lost[x.JobID] {
			x.log(r.Log).Warn("lease lost: the result was dropped", "error_code", codeOf(x.report))
		} else {
			n++
		}
	}
	l.Ticked(n, r.Every())
	r.Reported()
	r.over(batch)
	return nil
}

// codeOf is empty where the attempt delivered.
func codeOf(report work.WebhookReport) string {
	if report.Code == nil {
		return ""
	}
	return *report.Code
}

func (r *requests) over(batch []*delivery) {
	for _, x := range batch {
		r.ended <- end{x, true}
	}
}

// send makes the request and queues its result. A request cut off by a stop
// before its answer came is no attempt: it is not reported, and handBack returns
// the job.
func (r *requests) send(ctx context.Context, x *delivery) {
	log := x.log(r.Log)
	res, sent := r.attempt(ctx, x)
	if sent && ctx.Err() != nil && res.Status == 0 {
		return
	}
	x.sent, x.delivered = sent, res.Delivered
	r.ended <- end{x, false}
	if !sent {
		if x.fault != nil || x.unread {
			return // told, and handed back
		}
		log.Warn("not sent, for the lease was too short or the payload could not be read: the job is left to the cleaner", "error_code", "")
		return
	}
	log.Info("attempt", "error_code", res.Code, "status", res.Status, "took_ms", res.Took.Milliseconds(), "detail", res.Detail)
	x.report = work.WebhookReport{
		JobID: x.JobID, LeaseToken: x.LeaseToken, Delivered: res.Delivered, Excerpt: res.Excerpt,
		TookMS: float64(res.Took.Microseconds()) / 1000, Unsent: x.unreadable,
	}
	if res.Status != 0 {
		x.report.Status = &res.Status
	}
	if res.Code != "" {
		x.report.Code = &res.Code
	}
	if !res.RetryAfter.IsZero() {
		x.report.RetryAfter = &res.RetryAfter
	}
	r.results.Add(x)
}

// attempt is the request itself, bounded by what is left of the lease.
func (r *requests) attempt(ctx context.Context, x *delivery) (res sender.Result, sent bool) {
	defer func() {
		if p := recover(); p != nil {
			r.Log.Error("delivery panicked", "job_id", x.JobID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			res, sent = sender.Result{Code: sender.CodeWorkerPanic, Detail: "panic in the worker", Started: time.Now()}, true
		}
	}()
	if x.Payload != nil {
		return r.request(ctx, x, []byte(*x.Payload))
	}
	waiting, cancel := context.WithTimeout(ctx, max(x.left()-toReport-leastTimeout, 0))
	defer cancel()
	read := func(ctx context.Context, most int64) (work.Payload, error) {
		return r.Client.WebhookPayload(ctx, x.EventID, most)
	}
	err := r.Budget.Use(waiting, read, func(p work.Payload) {
		if x.expired(time.Now()) { // by the token that its claim spent
			x.unread = true
			return
		}
		res, sent = r.request(ctx, x, p.Text)
	})
	switch {
	case err == nil:
	case waiting.Err() != nil || pgerror.Retryable(err):
		x.unread = true
	default:
		r.Log.Error("the payload could not be read", "job_id", x.JobID, "error", err.Error())
	}
	return res, sent
}

const (
	toReport     = 2 * time.Second // of a lease are kept for the report
	leastTimeout = 500 * time.Millisecond
)

// request sends a payload; nil is one that cannot be handed out.
func (r *requests) request(ctx context.Context, x *delivery, payload []byte) (res sender.Result, sent bool) {
	timeout := min(time.Duration(x.TimeoutSeconds)*time.Second, x.left()-toReport)
	if timeout < leastTimeout {
		return sender.Result{}, false
	}
	if payload == nil {
		x.unreadable = true
		return sender.Result{Code: sender.CodeProtocolError, Detail: lease.Unreadable, Excerpt: "not sent: " + lease.Unreadable, Started: time.Now()}, true
	}
	req := sender.Request{URL: x.CallbackURL, ID: x.WebhookID, Body: payload, Timeout: timeout, Header: map[string]string{
		"webhook-event-type": sender.HeaderValue(x.EventType), "webhook-event-created": x.EventCreated,
	}}
	if x.SecretRef != nil && *x.SecretRef != "" {
		secrets, fault := r.Secrets.Look(*x.SecretRef)
		if fault != nil {
			x.fault = fault
			return sender.Result{}, false
		}
		req.Secrets = secrets
	}
	return r.Sender.Send(ctx, req), true
}
