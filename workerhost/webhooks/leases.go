package webhooks

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"slices"
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

// delivery is one claimed webhook job in this process.
type delivery struct {
	work.WebhookJob
	endpoint  string
	claimSent time.Time // taken before the claim was sent
	claimed   time.Time // when the claim returned
	// The request goroutine writes sent, delivered, payloadUnread (the turn of the payload did not come
	// in time), shortage and fault (the request could not be signed) before it sends the end of the
	// request to requests.ended. It writes report before it queues the delivery in
	// requests.results.
	sent, delivered bool
	payloadUnread   bool
	shortage        error // what this host lacked to send the request
	unreadable      bool  // the database cannot return the payload, or not at present; written together with report
	fault           *sender.Fault
	report          work.WebhookReport
	settled         atomic.Bool // the database has answered to the report
	resultLost      atomic.Bool // the request was made, and its result will never be recorded

	mu sync.Mutex
	// until is the end of the lease on the local clock. The lease is counted from before the
	// claim was sent, so in the database it never ends earlier.
	until time.Time
	lost  bool // the database refused a renewal: the lease is lost
}

// log returns a logger with the fields of the delivery. Together with worker_id and error_code
// they are the fields that R02 §5.3 requires.
func (x *delivery) log(l *slog.Logger) *slog.Logger {
	return l.With("saga_id", x.SagaID, "job_id", x.JobID, "lease_expiration", x.LeaseUntil)
}

// rateTokenExpired reports that the claim took a token of a rate limit for the delivery, and that
// the token is now too old to be used.
func (x *delivery) rateTokenExpired(now time.Time) bool {
	return x.Paced && now.Sub(x.claimed) > pacedFor
}

// length returns the duration of a lease, counted from its claim or renewal.
func (x *delivery) length() time.Duration { return time.Duration(x.LeaseSeconds) * time.Second }

// serverAhead returns how far the clock of the database server is ahead of this host's, by the time
// of the claim.
func (x *delivery) serverAhead() time.Duration {
	now := time.Now()
	return x.LeaseUntil.Add(-x.length()).Add(now.Sub(x.claimSent)).Sub(now.Round(0)) // now.Sub is monotonic
}

// remaining returns how much of the lease is left now.
func (x *delivery) remaining() time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Until(x.until)
}

// renewalDue reports whether a third of the lease has passed.
func (x *delivery) renewalDue() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.lost && time.Until(x.until) < x.length()*2/3
}

// renewed records the answer to a renewal that was sent at the time at. It returns true when the
// lease is lost.
func (x *delivery) renewed(at time.Time, done bool) (lost bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if done {
		x.until = at.Add(x.length())
		return false
	}
	x.lost, x.until = true, at // a request must not start now; if one is under way, the token fences its result
	return true
}

// claim is one claim with its parameters and result.
type claim struct {
	jobs            []work.WebhookJob
	err             error
	releaseBegan    time.Time // of releaseUnanswered before the claim
	releaseEnded    time.Time // zero = that was not called or failed with err
	limit           int
	perSubscription int // most jobs of one webhook subscription
	skipped         []int64
	after           int64 // claim only jobs with a greater id; 0 = from the head of the queue
	sent            time.Time
	returned        time.Time
}

// leases holds the deliveries that this host leases and that are not settled. It renews a lease
// once a third of it has passed, and hands back deliveries that are not sent. One goroutine owns
// it.
type leases struct {
	*Worker
	l          *loop.Loop
	leased     map[int64]*delivery
	unreleased []*delivery // deliveries to hand back when the database is available again, or their rows are not locked
	unanswered lease.Unanswered
	refused    []*delivery // their results were lost, and their leases may not have ended
}

// add keeps the deliveries of a claim until they are settled or handed back.
func (s *leases) add(c claim) []*delivery {
	if !c.releaseEnded.IsZero() {
		s.unanswered.Released(c.releaseBegan, c.releaseEnded)
	}
	if unsent := !c.releaseBegan.IsZero() && c.releaseEnded.IsZero(); !unsent && pgerror.MayHaveCommitted(c.err) {
		s.unanswered.Add()
	}
	xs := make([]*delivery, len(c.jobs))
	for i, j := range c.jobs {
		xs[i] = &delivery{WebhookJob: j, endpoint: endpointOf(j.CallbackURL), claimSent: c.sent, claimed: c.returned}
		xs[i].until = c.sent.Add(xs[i].length())
		s.leased[j.JobID] = xs[i]
	}
	return xs
}

// forget ends the renewal of a delivery. Its job may have been claimed again meanwhile, under another
// token: that delivery stays.
func (s *leases) forget(x *delivery) {
	if s.leased[x.JobID] == x {
		delete(s.leased, x.JobID)
	}
}

// refuse ends the renewal of a delivery whose result was lost. Until its lease has ended its token
// stays known: if the delivery were handed back as one of a claim without an answer, it would be
// sent again without counting a lost lease, and perhaps without end.
func (s *leases) refuse(x *delivery) {
	s.forget(x)
	s.refused = slices.DeleteFunc(append(s.refused, x), func(x *delivery) bool { return x.remaining() < -lease.Spare })
}

// tokens returns all lease tokens that this process knows.
func (s *leases) tokens() []string {
	tokens := make([]string, 0, len(s.leased)+len(s.refused))
	for _, x := range s.refused {
		tokens = append(tokens, x.LeaseToken)
	}
	for _, x := range s.leased {
		tokens = append(tokens, x.LeaseToken)
	}
	return tokens
}

// releaseUnanswered hands back the deliveries of claims that were committed although their answer
// never arrived: the deliveries that this host leases under a token not in known. No claim may be
// under way. Other goroutines than the owner of s may call it.
func (s *leases) releaseUnanswered(ctx context.Context, known []string) error {
	n, err := s.Client.WebhookClaimLost(ctx, s.ID, known)
	if err != nil && !pgerror.NoFunction(err) { // without the function the leases expire
		return err
	}
	if n > 0 {
		s.Log.Info("handed back deliveries of a claim whose answer did not arrive", "jobs", n)
	}
	return nil
}

// renew extends the leases of which a third has passed.
func (s *leases) renew(ctx context.Context) {
	var ids []int64
	var tokens []string
	for _, x := range s.leased {
		if x.renewalDue() {
			ids, tokens = append(ids, x.JobID), append(tokens, x.LeaseToken)
		}
	}
	if len(ids) == 0 {
		return
	}
	before := time.Now()
	out, err := s.Client.RenewWebhooks(ctx, ids, tokens)
	if err != nil {
		s.l.RecordError(err)
		return
	}
	for _, o := range out {
		if x := s.leased[o.JobID]; x != nil {
			if x.renewed(before, o.Outcome == "done") {
				x.log(s.Log).Warn("lease lost: the request under way is fenced", "error_code", "")
			}
		}
	}
}

// lockedPause is the time between two attempts to hand back deliveries whose rows other sessions have
// locked, at a stop.
const lockedPause = 50 * time.Millisecond

// handBack hands back all deliveries without a result, and the deliveries of claims without an
// answer. A delivery whose result was lost is not handed back: its lease expires, which counts.
func (s *leases) handBack(ctx context.Context) {
	var open []*delivery
	for _, x := range s.leased {
		if !x.settled.Load() && !x.resultLost.Load() {
			open = append(open, x)
		}
	}
	xs := append(open, s.unreleased...)
	s.unreleased = nil
	// a row that another session has locked is often free a moment later
	for end := time.Now().Add(min(s.l.Remaining(), loop.HandBackTime) / 2); s.release(ctx, xs) && len(s.unreleased) > 0 && time.Now().Before(end); {
		time.Sleep(lockedPause)
		xs, s.unreleased = s.unreleased, nil
	}
	if !s.unanswered.Open() {
		return
	}
	ctx, cancel := lease.Outlive(ctx, s.l.Remaining)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, loop.HandBackTime/2)
	defer cancel()
	if err := s.releaseUnanswered(ctx, s.tokens()); err != nil {
		s.Log.Warn("deliveries of a claim whose answer did not arrive could not be handed back; their leases will expire", "error", err.Error())
	}
}

// retryRelease hands back the deliveries that could not be handed back before.
func (s *leases) retryRelease(ctx context.Context) {
	owed := s.unreleased
	s.unreleased = nil
	s.release(ctx, owed)
}

// release returns deliveries to Pending without counting an attempt; false when the statement
// failed. After a temporary failure retryRelease repeats it later, as it does for a delivery whose
// row another session has locked; after any other failure the leases will expire.
func (s *leases) release(ctx context.Context, xs []*delivery) bool {
	if len(xs) == 0 {
		return true
	}
	ids, tokens := make([]int64, len(xs)), make([]string, len(xs))
	for i, x := range xs {
		ids[i], tokens[i] = x.JobID, x.LeaseToken
		s.forget(x)
	}
	// A stop must not cancel the statement, because leases no longer holds these deliveries.
	ctx, cancel := lease.Outlive(ctx, s.l.Remaining)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, loop.HandBackTime/2)
	defer cancel()
	out, err := s.Client.ReleaseWebhooks(ctx, ids, tokens)
	if err != nil && pgerror.Retryable(err) {
		s.unreleased = append(s.unreleased, xs...)
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
		switch outcome[x.JobID] {
		case "":
			s.unreleased = append(s.unreleased, x)
		case "done":
			x.log(s.Log).Info("handed back", "error_code", "")
		default:
			x.log(s.Log).Warn("lease lost before it was handed back", "error_code", "")
		}
	}
	return true
}

// endpointOf returns the host:port of a URL in lower case, or the whole text if it cannot be
// parsed.
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
