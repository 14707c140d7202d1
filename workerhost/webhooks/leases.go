package webhooks

// This file is the deliveries that are leased here: each is renewed at a third of its
// lease, and handed back when it will not be sent.

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
	"github.com/qtop/qtop/workerhost/loop"
	"github.com/qtop/qtop/workerhost/sender"
)

// delivery is one claimed job inside this process.
type delivery struct {
	work.WebhookJob
	endpoint string
	claimed  time.Time // before the claim was sent
	came     time.Time // when the claim came back
	// sent, delivered, unread (its payload could not be read for now) and fault (it could not
	// be signed) are written before the request's end is told, report before it is queued.
	sent, delivered bool
	unread          bool
	unreadable      bool // its payload cannot be handed out: written with the report
	fault           *sender.Fault
	report          work.WebhookReport
	settled         atomic.Bool // the database answered for the result

	mu sync.Mutex
	// until is the local end of the lease, counted from before the claim was
	// sent: the server's clock and the way there can only make it later.
	until time.Time
	lost  bool // a renewal found the lease gone
}

// log says of which delivery its lines are: with worker_id and error_code these are the fields of R02 §5.3.
func (x *delivery) log(l *slog.Logger) *slog.Logger {
	return l.With("saga_id", x.SagaID, "job_id", x.JobID, "lease_expiration", x.LeaseUntil)
}

// expired tells that the delivery may not be sent any more by the token that its
// claim spent.
func (x *delivery) expired(now time.Time) bool { return x.Paced && now.Sub(x.came) > pacedFor }

// length is how long the lease lasts from a claim or renewal.
func (x *delivery) length() time.Duration { return time.Duration(x.LeaseSeconds) * time.Second }

// left is how long the lease lasts from now.
func (x *delivery) left() time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Until(x.until)
}

// due tells whether the lease is a third old.
func (x *delivery) due() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.lost && time.Until(x.until) < x.length()*2/3
}

// renewed takes the answer of a renewal that was asked for at a time; true when it says that the lease is lost.
func (x *delivery) renewed(at time.Time, done bool) (lost bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if done {
		x.until = at.Add(x.length())
		return false
	}
	x.lost, x.until = true, at // too late to send; what is under way is fenced
	return true
}

// claim is one that came back.
type claim struct {
	jobs   []work.WebhookJob
	err    error
	asked  int
	each   int // of one subscription
	skip   []int64
	after  int64 // only jobs with a greater id, where it is not 0
	before time.Time
	came   time.Time
}

// leases are the deliveries that are leased here and not settled. One goroutine
// owns them.
type leases struct {
	*Worker
	l      *loop.Loop
	flying map[int64]*delivery
	owed   []*delivery // to be handed back once the database takes it
}

// take keeps what a claim brought until it is settled or handed back.
func (s *leases) take(c claim) []*delivery {
	xs := make([]*delivery, len(c.jobs))
	for i, j := range c.jobs {
		xs[i] = &delivery{WebhookJob: j, endpoint: endpointOf(j.CallbackURL), claimed: c.before, came: c.came}
		xs[i].until = c.before.Add(xs[i].length())
		s.flying[j.JobID] = xs[i]
	}
	return xs
}

// renew prolongs the leases that are a third old.
func (s *leases) renew(ctx context.Context) {
	var ids []int64
	var tokens []string
	for _, x := range s.flying {
		if x.due() {
			ids, tokens = append(ids, x.JobID), append(tokens, x.LeaseToken)
		}
	}
	if len(ids) == 0 {
		return
	}
	before := time.Now()
	out, err := s.Client.RenewWebhooks(ctx, ids, tokens)
	if err != nil {
		s.l.Erred(err)
		return
	}
	for _, o := range out {
		if x := s.flying[o.JobID]; x != nil {
			if x.renewed(before, o.Outcome == "done") {
				x.log(s.Log).Warn("lease lost: the request under way is fenced", "error_code", "")
			}
		}
	}
}

// handBack releases what has no result.
func (s *leases) handBack(ctx context.Context) {
	var open []*delivery
	for _, x := range s.flying {
		if !x.settled.Load() {
			open = append(open, x)
		}
	}
	owed := s.owed
	s.owed = nil
	s.release(ctx, append(open, owed...))
}

// settleOwed hands back what could not be handed back before.
func (s *leases) settleOwed(ctx context.Context) {
	owed := s.owed
	s.owed = nil
	s.release(ctx, owed)
}

// release returns jobs to Pending, no attempt spent; false when the database did not hear
// it. Unless it never will, that is tried again; else their leases will expire.
func (s *leases) release(ctx context.Context, xs []*delivery) bool {
	if len(xs) == 0 {
		return true
	}
	ids, tokens := make([]int64, len(xs)), make([]string, len(xs))
	for i, x := range xs {
		ids[i], tokens[i] = x.JobID, x.LeaseToken
		if s.flying[x.JobID] == x { // one that is owed may have been claimed again
			delete(s.flying, x.JobID)
		}
	}
	// A stop must not cancel it: nobody else knows of these leases any more.
	ctx, cancel := lease.Outlive(ctx, s.l.Left)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, loop.HandBack/2)
	defer cancel()
	out, err := s.Client.ReleaseWebhooks(ctx, ids, tokens)
	if err != nil && pgerror.Retryable(err) {
		s.owed = append(s.owed, xs...)
		s.Log.Warn("jobs could not be handed back yet", "jobs", len(ids), "error", err.Error())
		return false
	}
	if err != nil {
		s.Log.Error("jobs could not be handed back; their leases will expire", "jobs", len(ids), "error", err.Error())
		return false
	}
	outcome := map[int64]string{}
	for _, o := range out {
		outcome[o.JobID] = o.Outcome
	}
	for _, x := range xs {
		if outcome[x.JobID] == "done" {
			x.log(s.Log).Info("handed back", "error_code", "")
		} else {
			x.log(s.Log).Warn("lease lost before it was handed back", "error_code", "")
		}
	}
	return true
}

// endpointOf is host:port in lower case; what cannot be parsed is its own.
func endpointOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return raw
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(net.JoinHostPort(u.Hostname(), port))
}
