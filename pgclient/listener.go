package pgclient

// The LISTEN connection is a single connection outside the pools. It is pinged, tested with a
// signal that a second connection sends, and reopened whenever it fails. A wake signal is only a
// hint: each time that listening begins, resync is called so that the caller reads everything
// again, because signals sent in the meantime are lost.

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
)

// A connection whose network has failed returns no error. The ping notices that at most pingEvery
// + pingWithin later.
const (
	pingEvery   = 5 * time.Second
	pingWithin  = 3 * time.Second
	probeWithin = 2 * time.Second
	maxBackoff  = 5 * time.Second
)

// Listener is one LISTEN connection that reconnects by itself.
type Listener struct {
	cfg    *pgx.ConnConfig
	route  *pgsession.Route
	second *pgpool.Pool // sends the probe: only a signal from another connection proves that LISTEN works
	onWake func(queue.Wake)
	resync func()
	own    bool                       // its connection string is listen_dsn
	tell   func(queue.ListenerStatus) // called on each change of state; may be nil

	mu     sync.Mutex
	status queue.ListenerStatus
	wakes  []queue.Wake // a ring buffer; newest is the index of the next signal
	newest int
}

// keptWakes is how many wake signals are kept to show; keptWakeText is how many bytes of each text
// in a payload are kept, because any login can send a signal of any content.
const (
	keptWakes    = 200
	keptWakeText = 200
)

// newListener prepares a listener; Run runs it. onWake is called for every wake signal, resync
// each time LISTEN is established. If LISTEN cannot work, neither is ever called, so callers must also
// poll.
func newListener(cfg *pgx.ConnConfig, route *pgsession.Route, name string, second *pgpool.Pool, onWake func(queue.Wake), resync func()) *Listener {
	cfg = cfg.Copy()
	pgsession.LimitConnect(cfg, pgpool.ReadTimeout, pgpool.WorkTimeout) // no caller waits for it
	pgpool.SetSession(cfg, name, pingWithin)
	return &Listener{
		cfg: cfg, route: route, second: second, onWake: onWake, resync: resync,
		status: queue.ListenerStatus{State: "connecting", Since: time.Now()},
	}
}

// Tell sets f to be called on each change of state. Call it before Run.
func (l *Listener) Tell(f func(queue.ListenerStatus)) { l.tell = f }

// Status returns the state of the listener.
func (l *Listener) Status() queue.ListenerStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Wakes returns the last wake signals received, newest first.
func (l *Listener) Wakes() []queue.Wake {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]queue.Wake, len(l.wakes))
	for i := range out {
		out[i] = l.wakes[(l.newest-1-i+2*len(l.wakes))%len(l.wakes)]
	}
	return out
}

// Run listens until ctx ends.
func (l *Listener) Run(ctx context.Context) {
	backoff := 100 * time.Millisecond
	for ctx.Err() == nil {
		started := time.Now()
		err := l.serve(ctx)
		if ctx.Err() != nil {
			break
		}
		var deaf *deafError
		state := "lost"
		if errors.As(err, &deaf) {
			state = "polling"
		}
		l.set(state, queue.Clean(pgerror.Translate(err).Error()))
		if time.Since(started) > 30*time.Second {
			backoff = 100 * time.Millisecond
		}
		wait := backoff/2 + mathrand.N(backoff/2+1)
		if deaf != nil {
			wait = deaf.wait
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		backoff = min(2*backoff, maxBackoff)
	}
	l.set("off", queue.Text{})
}

// deafError is the reason why LISTEN cannot work on this connection, such as a transaction pooler
// or a standby.
type deafError struct {
	why  string
	wait time.Duration // until the next attempt
}

const (
	poolerWait  = 30 * time.Second
	standbyWait = 5 * time.Second // retry after this time, because the standby may be promoted
)

func (e *deafError) Error() string { return e.why }

func (l *Listener) set(state string, reason queue.Text) {
	l.mu.Lock()
	changed := l.status.State != state
	if changed {
		l.status.Since = time.Now()
	}
	l.status.State, l.status.Reason = state, reason
	status := l.status
	l.mu.Unlock()
	if changed && l.tell != nil {
		l.tell(status)
	}
}

// serve listens on one connection until it fails.
func (l *Listener) serve(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil { // a panic in a receiver of wake signals must not end the process
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	conn, err := l.route.Connect(ctx, l.cfg)
	if err != nil {
		return err
	}
	defer func() {
		done, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(done) // the connection is not used again, so an error does not matter
	}()
	if err := l.probe(ctx, conn); err != nil {
		return err
	}
	channels, err := l.subscribe(ctx, conn, nil)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.status.Resyncs++
	l.mu.Unlock()
	l.set("listening", queue.Text{})
	l.resync()
	next := time.Now().Add(pingEvery)
	for {
		wait, cancel := context.WithDeadline(ctx, next)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			l.heard(n)
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded) && !pgconn.Timeout(err):
			return err
		}
		if time.Now().Before(next) {
			continue
		}
		if channels, err = l.subscribe(ctx, conn, channels); err != nil {
			return err
		}
		next = time.Now().Add(pingEvery)
	}
}

// probe checks that signals arrive. Behind a transaction pooler LISTEN succeeds, but only signals
// that the connection sends to itself arrive. So another connection sends the signal of the probe.
func (l *Listener) probe(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingWithin+probeWithin)
	defer cancel()
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return err
	}
	channel := "queue_probe_" + hex.EncodeToString(nonce[:])
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && (pg.Code == "25006" || pg.Code == "0A000" || pg.Code == "42601") {
			return &deafError{"this server does not LISTEN: " + pg.Message, standbyWait}
		}
		return err
	}
	if err := l.ring(ctx, channel); err != nil {
		return err
	}
	wait, stop := context.WithTimeout(ctx, probeWithin)
	defer stop()
	for {
		n, err := conn.WaitForNotification(wait)
		if err != nil {
			if pgconn.Timeout(err) && ctx.Err() == nil {
				return &deafError{queue.Choose(l.own,
					"no signal arrives over listen_dsn: it leads through a transaction pooler or to another database; set it to a direct connection to the same database",
					"no signal arrives: dsn leads through a transaction pooler; set listen_dsn to a direct connection"), poolerWait}
			}
			return err
		}
		if n.Channel == channel {
			_, err = conn.Exec(ctx, "UNLISTEN "+channel)
			return err
		}
	}
}

// ring sends the probe. If the listener's connection was lost, the pool's connections usually are
// too, and the pool finds out only by using them.
func (l *Listener) ring(ctx context.Context, channel string) error {
	for dead := l.second.Stat().TotalConns(); ; dead-- {
		_, err := l.second.Exec(ctx, "SELECT pg_notify($1, '')", channel)
		if err == nil || dead <= 0 || ctx.Err() != nil || !pgerror.Retryable(err) {
			return err
		}
	}
}

// subscribe makes the connection LISTEN to the channels of the domains that exist now, and returns
// these channels; its query is also the ping. have: the channels so far.
func (l *Listener) subscribe(ctx context.Context, conn *pgx.Conn, have []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	want, err := wakeChannels(ctx, conn, `
		UNION SELECT event_domain FROM public.event_subscription
		UNION SELECT event_domain FROM public.job_subscription
		UNION SELECT event_domain FROM public.job_lane`)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "42501" || pg.Code == "42P01") {
		want, err = wakeChannels(ctx, conn, "") // the login may not read some of these tables, or an older schema lacks one
	}
	if err != nil {
		return nil, err
	}
	var sql string
	for _, c := range want {
		if !slices.Contains(have, c) {
			sql += fmt.Sprintf("LISTEN %s;", pgx.Identifier{c}.Sanitize())
		}
	}
	for _, c := range have {
		if !slices.Contains(want, c) {
			sql += fmt.Sprintf("UNLISTEN %s;", pgx.Identifier{c}.Sanitize())
		}
	}
	if sql != "" {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	l.status.Channels, l.status.LastPing = len(want), time.Now()
	l.mu.Unlock()
	return want, nil
}

// wakeChannels returns the channels queue_wake_DOMAIN of all domains: those in
// event_type_registry, and those that more, the end of a UNION, selects.
func wakeChannels(ctx context.Context, conn *pgx.Conn, more string) ([]string, error) {
	return pgrow.Column[string](ctx, conn, `SELECT 'queue_wake_' || d FROM (
		SELECT event_domain AS d FROM public.event_type_registry`+more+`
		UNION SELECT 'webhook' UNION SELECT 'system') s WHERE d ~ '^[a-z][a-z0-9_]{0,50}$' ORDER BY 1`, pgx.QueryExecModeExec)
}

// heard records one signal. Any login can send one, so its payload is parsed leniently, shown, and
// otherwise used only as a hint.
func (l *Listener) heard(n *pgconn.Notification) {
	var p struct {
		Layer      queue.Text      `json:"layer"`
		Hint       queue.Text      `json:"worker_hint"`
		Count      json.RawMessage `json:"count"`
		OccurredAt string          `json:"occurred_at"`
		Delayed    *int64          `json:"delayed"`
	}
	w := queue.Wake{At: time.Now(), Channel: queue.Clean(n.Channel), LagMS: -1}
	if json.Unmarshal([]byte(n.Payload), &p) == nil {
		w.Layer, w.Hint = p.Layer.Cut(keptWakeText), p.Hint.Cut(keptWakeText)
		if json.Unmarshal(p.Count, &w.Count) != nil {
			w.Count = 0
		}
		if at, err := time.Parse(time.RFC3339Nano, p.OccurredAt); err == nil {
			w.LagMS = float64(w.At.Sub(at).Microseconds()) / 1000
		}
		w.Delayed = p.Delayed
	}
	l.mu.Lock()
	l.status.Heard++
	if len(l.wakes) < keptWakes {
		l.wakes = append(l.wakes, w)
	} else {
		l.wakes[l.newest] = w
	}
	l.newest = (l.newest + 1) % keptWakes
	l.mu.Unlock()
	l.onWake(w)
}
