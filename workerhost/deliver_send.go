package workerhost

// This file is one request of the webhook worker, from its claimed job to the
// result that is queued for the database.

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/workerhost/sender"
)

// send makes the request and queues its result. A request cut off by a stop
// before its answer came is no attempt: it is not reported, and handBack returns
// the job.
func (d *deliverer) send(ctx context.Context, x *delivery) {
	log := d.h.log.With("saga_id", x.SagaID, "job_id", x.JobID, "lease_expiration", x.LeaseUntil)
	res, sent := d.attempt(ctx, x)
	if sent && ctx.Err() != nil && res.Status == 0 {
		return
	}
	x.sent, x.delivered = sent, res.Delivered
	d.ended <- end{x, false}
	if !sent {
		if x.fault != nil {
			return // told, and handed back
		}
		log.Warn("lease too short for a request, job left to the cleaner", "error_code", "")
		return
	}
	log.Info("attempt", "error_code", res.Code, "status", res.Status, "took_ms", res.Took.Milliseconds(), "detail", res.Detail)
	rep := pgclient.WebhookReport{
		JobID: x.JobID, LeaseToken: x.LeaseToken, Delivered: res.Delivered, Excerpt: res.Excerpt,
		TookMS: float64(res.Took.Microseconds()) / 1000, Unsent: x.Payload == nil,
	}
	if res.Status != 0 {
		rep.Status = &res.Status
	}
	if res.Code != "" {
		rep.Code = &res.Code
	}
	if !res.RetryAfter.IsZero() {
		rep.RetryAfter = &res.RetryAfter
	}
	d.reports.add(pending{WebhookReport: rep, x: x, until: d.untilOf(x), done: func() { d.ended <- end{x, true} }})
}

// untilOf reads the end of a lease when the result is recorded: it may have been
// renewed since.
func (d *deliverer) untilOf(x *delivery) func() time.Time {
	return func() time.Time {
		d.mu.Lock()
		defer d.mu.Unlock()
		return x.until
	}
}

// payloadUnreadable is the cause of a failure of a row that the database cannot hand
// out: the others of its claim go on.
const payloadUnreadable = "as text the payload is longer than 64 MiB, or holds numbers of thousands of digits that make it so"

// attempt is the request itself, bounded by what is left of the lease.
func (d *deliverer) attempt(ctx context.Context, x *delivery) (res sender.Result, sent bool) {
	defer func() {
		if p := recover(); p != nil {
			d.h.log.Error("delivery panicked", "job_id", x.JobID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			res, sent = sender.Result{Code: sender.CodeWorkerPanic, Detail: "panic in the worker", Started: time.Now()}, true
		}
	}()
	d.mu.Lock()
	left := time.Until(x.until) - 2*time.Second // to report in
	d.mu.Unlock()
	timeout := min(time.Duration(x.TimeoutSeconds)*time.Second, left)
	if timeout < 500*time.Millisecond {
		return sender.Result{}, false
	}
	if x.Payload == nil {
		return sender.Result{Code: sender.CodeProtocolError, Detail: payloadUnreadable, Excerpt: "not sent: " + payloadUnreadable, Started: time.Now()}, true
	}
	req := sender.Request{URL: x.CallbackURL, ID: x.WebhookID, Body: []byte(*x.Payload), Timeout: timeout}
	if x.SecretRef != nil && *x.SecretRef != "" {
		secrets, fault := d.h.opts.Secrets.Look(*x.SecretRef)
		if fault != nil {
			x.fault = fault
			return sender.Result{}, false
		}
		req.Secrets = secrets
	}
	return d.h.opts.Sender.Send(ctx, req), true
}
