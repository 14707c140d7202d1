package webhooks

import (
	"context"
	"errors"
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

// end reports that the request of a delivery has ended or, if result is set, that its result is
// recorded or lost.
type end struct {
	x      *delivery
	result bool
}

// requests sends the requests, each in a separate goroutine, and records their results.
type requests struct {
	*Worker
	l       *loop.Loop
	ended   chan end // never blocks a sender: it has room for two ends of each delivery that can be leased
	results *lease.Results[*delivery]
	sending sync.WaitGroup
	pauses  lease.Pauses[int64, int64] // by webhook subscription
}

// newRequests makes a requests for at most maxDeliveries leased deliveries.
func newRequests(w *Worker, l *loop.Loop, maxDeliveries int) *requests {
	r := &requests{Worker: w, l: l, ended: make(chan end, 2*maxDeliveries)}
	r.results = lease.NewResults(1, lease.Recorder[*delivery]{
		Record:    func(ctx context.Context, batch []*delivery) error { return r.record(ctx, batch) },
		LeaseLeft: (*delivery).remaining,
		OnLost: func(batch []*delivery, err error) {
			w.Log.Error("results could not be recorded: the leases will expire and the webhooks will be sent again", "jobs", len(batch), "error", err.Error())
			for _, x := range batch {
				x.resultLost.Store(true)
			}
			r.notifyEnded(batch)
		},
		OnError:   l.RecordError,
		TextBytes: func(x *delivery) int { return len(x.report.Excerpt) },
		DropText:  func(x *delivery) { x.report.Excerpt = "" },
	})
	return r
}

// record records the results of a batch as one statement.
func (r *requests) record(ctx context.Context, batch []*delivery) error {
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
	r.l.RecordTick(n, r.Every())
	r.OnReported()
	r.notifyEnded(batch)
	return nil
}

// codeOf returns the error code of an attempt, "" if the attempt succeeded.
func codeOf(report work.WebhookReport) string {
	if report.Code == nil {
		return ""
	}
	return *report.Code
}

func (r *requests) notifyEnded(batch []*delivery) {
	for _, x := range batch {
		r.ended <- end{x, true}
	}
}

// send makes the request and queues its result. If a stop cancels the request before the response
// arrived, that is no attempt: there is no result, and leases.handBack returns the job.
func (r *requests) send(ctx context.Context, x *delivery) {
	log := x.log(r.Log)
	res, sent := r.attempt(ctx, x)
	if sent && ctx.Err() != nil && res.Status == 0 {
		return
	}
	if sent {
		sent = !r.lacks(x, res.Shortage)
	}
	x.sent, x.delivered = sent, res.Delivered
	r.ended <- end{x, false}
	if !sent {
		if x.fault != nil || x.payloadUnread || x.shortage != nil {
			return // requestEnded logs the fault and hands the delivery back
		}
		log.Warn("not sent: the lease was too short or the payload could not be read; the cleaner returns the job when its lease expires", "error_code", "")
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

// lacks reports whether a delivery must be handed back because this host lacked something to send it.
func (r *requests) lacks(x *delivery, lack error) bool {
	if lack == nil {
		r.pauses.Began(x.SubscriptionID, x.JobID)
		return false
	}
	r.l.RecordShortage(lack)
	if !r.pauses.HandBack(x.SubscriptionID, x.JobID) {
		return false
	}
	x.shortage = lack
	r.l.Log.Warn("webhooks are handed back and claimed later", "error", lack.Error(), "subscription_id", x.SubscriptionID)
	return true
}

// errTokenExpired reports that the payload was not read, because the token of a rate limit is too old.
var errTokenExpired = errors.New("the token of the rate limit is too old")

// attempt makes the request, within the rest of the lease. sent is false if no request was made
// and no result must be recorded.
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
	waiting, cancel := context.WithTimeout(ctx, max(x.remaining()-reportReserve-minTimeout, 0))
	defer cancel()
	// The token of a rate limit must be young when the read begins. It does not expire during the
	// read: a payload that always takes longer would never be sent.
	begun, late := false, false
	var unread error // what the database said
	read := func(ctx context.Context, most int64) (p work.Payload, err error) {
		if !begun && x.rateTokenExpired(time.Now()) {
			return p, errTokenExpired
		}
		if end, _ := ctx.Deadline(); !begun {
			begun, late = true, time.Until(end) < minTimeout
		}
		p, unread = r.Client.WebhookPayload(ctx, x.EventID, most)
		return p, unread
	}
	err := r.Budget.Use(waiting, read, func(p work.Payload) { res, sent = r.request(ctx, x, p.Text) })
	switch {
	case err == nil:
	case ctx.Err() != nil || unread == nil || late && waiting.Err() != nil: // a stop, a token that is too old, or no room in the time
		x.payloadUnread = true
	case pgerror.Retryable(unread), pgerror.ValueUnreadable(unread): // a failed attempt without a request; at once, or where a shortage lasts
		x.unreadable = true
		res = sender.Result{Code: sender.CodeProtocolError, Detail: unread.Error(), Excerpt: "not sent: " + unread.Error(), Started: time.Now()}
		if pgerror.Retryable(unread) {
			res.Shortage = unread
		}
		return res, true
	default:
		r.Log.Error("the payload could not be read", "job_id", x.JobID, "error", err.Error())
	}
	return res, sent
}

const (
	reportReserve = 2 * time.Second // the part of the lease that is kept for recording the result
	minTimeout    = 500 * time.Millisecond
)

// request sends a payload. A nil payload means that the database cannot return it; then the
// attempt fails without a request.
func (r *requests) request(ctx context.Context, x *delivery, payload []byte) (res sender.Result, sent bool) {
	timeout := min(time.Duration(x.TimeoutSeconds)*time.Second, x.remaining()-reportReserve)
	if timeout < minTimeout {
		return sender.Result{}, false
	}
	if payload == nil {
		x.unreadable = true
		return sender.Result{Code: sender.CodeProtocolError, Detail: lease.Unreadable, Excerpt: "not sent: " + lease.Unreadable, Started: time.Now()}, true
	}
	req := sender.Request{URL: x.CallbackURL, ID: x.WebhookID, Body: payload, Timeout: timeout, ClockAhead: x.serverAhead(), Header: map[string]string{
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
