package pgclient

// This file is the LISTEN connection: alone and unpooled, pinged, proven by a
// signal from a second connection, and always healed. A wake is only ever a
// hint: after each (re)subscription everything is refreshed, for what was sent
// meanwhile is lost.

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

// A dead connection gives no error by itself: it is noticed by the ping, at
// most pingEvery + pingWithin after it died.
const (
	pingEvery   = 5 * time.Second
	pingWithin  = 3 * time.Second
	probeWithin = 2 * time.Second
	maxBackoff  = 5 * time.Second
)

// Listener is one LISTEN connection that heals itself.
type Listener struct {
	cfg    *pgx.ConnConfig
	route  *pgsession.Route
	second *pgpool.Pool // sends the probe: only a signal from elsewhere proves LISTEN
	onWake func(queue.Wake)
	resync func()
	own    bool                       // its connection string is listen_dsn
	tell   func(queue.ListenerStatus) // of each change of state; nil tells nobody

	mu     sync.Mutex
	status queue.ListenerStatus
	wakes  []queue.Wake // a ring; the next one goes to newest
	newest int
}

// keptWakes bounds the stream that the console shows, keptWakeText what of a
// payload's texts is kept: they come from anybody.
const (
	keptWakes    = 200
	keptWakeText = 200
)

// newListener prepares a listener; Run drives it. onWake gets every wake,
// resync is called after each subscription. Where LISTEN cannot work neither is
// ever called: whoever depends on it polls anyway.
func newListener(cfg *pgx.ConnConfig, route *pgsession.Route, name string, second *pgpool.Pool, onWake func(queue.Wake), resync func()) *Listener {
	cfg = cfg.Copy()
	pgpool.SetSession(cfg, name, pingWithin)
	return &Listener{
		cfg: cfg, route: route, second: second, onWake: onWake, resync: resync,
		status: queue.ListenerStatus{State: "connecting", Since: time.Now()},
	}
}

// Tell has each change of the state told to f. It is called before Run.
func (l *Listener) Tell(f func(queue.ListenerStatus)) { l.tell = f }

// Status tells how the listener is.
func (l *Listener) Status() queue.ListenerStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Wakes are the last ones heard, newest first.
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

// deafError says that LISTEN cannot work on this connection at all.
type deafError struct {
	why  string
	wait time.Duration // until the next try
}

const (
	poolerWait  = 30 * time.Second
	standbyWait = 5 * time.Second // it may be promoted
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

// serve is one connection's life.
func (l *Listener) serve(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil { // of a receiver of wakes: it must not end the process
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
		_ = conn.Close(done) // it is done with, whatever the server says
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

// probe proves that signals arrive: behind a transaction pooler LISTEN succeeds
// and nothing ever comes, and a signal to oneself comes all the same.
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
					"listen_dsn hears nothing of dsn: a transaction pooler stands in it, or it leads to another database; set it to a direct connection to the same one",
					"a transaction pooler stands between: LISTEN hears nothing; set listen_dsn to a direct connection"), poolerWait}
			}
			return err
		}
		if n.Channel == channel {
			_, err = conn.Exec(ctx, "UNLISTEN "+channel)
			return err
		}
	}
}

// ring sends the probe. What ended the listener's connection has mostly ended
// the pool's as well, which finds out by using them.
func (l *Listener) ring(ctx context.Context, channel string) error {
	for dead := l.second.Stat().TotalConns(); ; dead-- {
		_, err := l.second.Exec(ctx, "SELECT pg_notify($1, '')", channel)
		if err == nil || dead <= 0 || ctx.Err() != nil || !pgerror.Retryable(err) {
			return err
		}
	}
}

// subscribe brings the subscriptions in line with the domains that exist now;
// its query is also the ping.
func (l *Listener) subscribe(ctx context.Context, conn *pgx.Conn, have []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	want, err := wakeChannels(ctx, conn, `
		UNION SELECT event_domain FROM public.event_subscription
		UNION SELECT event_domain FROM public.job_subscription
		UNION SELECT event_domain FROM public.job_lane`)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "42501" || pg.Code == "42P01") {
		want, err = wakeChannels(ctx, conn, "") // a login or a schema without them
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

// wakeChannels lists the channels of all domains that there are: those of the registry,
// and of what more may be named.
func wakeChannels(ctx context.Context, conn *pgx.Conn, more string) ([]string, error) {
	return pgrow.Column[string](ctx, conn, `SELECT 'queue_wake_' || d FROM (
		SELECT event_domain AS d FROM public.event_type_registry`+more+`
		UNION SELECT 'webhook' UNION SELECT 'system') s WHERE d ~ '^[a-z][a-z0-9_]{0,50}$' ORDER BY 1`, pgx.QueryExecModeExec)
}

// heard records one signal. Its payload may come from anybody: it is read
// leniently, and what it says is only shown and taken as a hint.
func (l *Listener) heard(n *pgconn.Notification) {
	var p struct {
		Layer      queue.Text      `json:"layer"`
		Hint       queue.Text      `json:"worker_hint"`
		Count      json.RawMessage `json:"count"`
		OccurredAt string          `json:"occurred_at"`
		Due        string          `json:"process_after"`
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
		if due, err := time.Parse(time.RFC3339Nano, p.Due); err == nil {
			w.Due = due
		}
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
