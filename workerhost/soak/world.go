package main

// One run of the soak: it starts the server, the hosts and the producers,
// kills hosts, and compares at the end.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/schema"
)

const (
	database    = "soak"
	hostLogin   = "soak_host"
	writerLogin = "soak_writer"
	viewerLogin = "soak_viewer"
	executor    = "soak"
	jobKind     = "soak.call"
	eventType   = "soak.happened"
	secretName  = "SOAK_SECRET"

	jobProducers, webhookProducers = 16, 4
)

// soak is one run of the command.
type soak struct {
	options
	progress io.Writer
	began    time.Time
	produced time.Duration // how long the producers ran

	server   *embedded.Server
	admin    *pgxpool.Pool
	receiver *http.Server
	url      string
	hosts    []*host
	console  *console
	ledger   *ledger
	samples  []sample
	file     *os.File
	slowest  time.Duration // longest time from a kill until the host was ready again
	health   map[int]int   // how often `qtop status` returned each exit code
	wrong    []string
}

func (s *soak) say(format string, args ...any) {
	fmt.Fprintf(s.progress, "%s  "+format+"\n", append([]any{time.Now().UTC().Format(time.TimeOnly)}, args...)...)
}

// fail records a failure: the soak continues, and fails at its end.
func (s *soak) fail(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
	s.say("WRONG: "+format, args...)
}

func (s *soak) dsn(login string) string { return s.server.DSN(login, database) }

// run runs the whole soak, until every acknowledged job and webhook is done.
func (s *soak) run(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	s.began = time.Now()
	s.say("producers produce for %s; samples: %s", s.duration, filepath.Join(s.dir, "samples.jsonl"))
	producing, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	for i := range jobProducers {
		work.Go(func() { s.produce(producing, "job", i, jobProducers, s.jobs) })
	}
	for i := range webhookProducers {
		work.Go(func() { s.produce(producing, "webhook", i, webhookProducers, s.webhooks) })
	}
	work.Go(func() { s.console.use(producing) })
	err := s.watch(ctx)
	cancel()
	work.Wait()
	s.produced = time.Since(s.began)
	if err == nil {
		err = s.finish(ctx)
	}
	return err
}

// open starts the server, the receiver, the hosts and the console.
func (s *soak) open(ctx context.Context) (err error) {
	if s.file, err = os.Create(filepath.Join(s.dir, "samples.jsonl")); err != nil {
		return err
	}
	if s.server, err = embedded.Start(ctx, embedded.Options{Notice: func(line string) { s.say("%s", line) }}); err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.url = "http://" + l.Addr().String()
	s.receiver = &http.Server{Handler: s.ledger, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.receiver.Serve(l) }()
	if _, err := s.admin.Exec(ctx, `INSERT INTO public.subscriptions (event_type, callback_url, active, verified, secret_ref)
		VALUES ($1, $2, true, true, $3)`, eventType, s.url+"/webhook", secretName); err != nil {
		return err
	}
	for _, id := range []string{"steady", "killed"} { // the host steady is never killed
		h := &host{soak: s, id: id}
		s.hosts = append(s.hosts, h)
		if err := h.start(ctx); err != nil {
			return err
		}
	}
	s.console, err = s.openConsole()
	return err
}

// prepare installs the schema, the logins and the job subscription by which the hosts claim jobs.
func (s *soak) prepare(ctx context.Context) error {
	conn, err := pgsession.Connect(ctx, s.server.DSN(embedded.Superuser, "postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+database)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return err
	}
	super := s.dsn(embedded.Superuser)
	if err := schema.Up(ctx, super, func(string) {}); err != nil {
		return err
	}
	config, err := pgsession.PoolConfig(super)
	if err != nil {
		return err
	}
	config.MaxConns = 4
	if s.admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	for _, sql := range []string{
		"CREATE ROLE " + hostLogin + " LOGIN IN ROLE dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner",
		"CREATE ROLE " + writerLogin + " LOGIN IN ROLE event_ingest_writer",
		"CREATE ROLE " + viewerLogin + " LOGIN IN ROLE queue_viewer",
	} {
		if _, err := s.admin.Exec(ctx, sql); err != nil {
			return err
		}
	}
	// The default lease is 5 minutes. A short soak uses a shorter one, so that
	// the jobs of a killed host are done before the next kill.
	lease := min(5*time.Minute, max(10*time.Second, s.kill/2))
	for _, sql := range []string{
		fmt.Sprintf("SELECT public.fn_dot_config_set('queue.lease.duration_seconds', '%.0f', 'soak', 'soak') ->> 'reason'", lease.Seconds()),
		"SELECT public.fn_queue_heartbeat_register('" + executor + "', 'DOT', '{}', 10, 600, 'soak') ->> 'reason'",
		"SELECT public.fn_job_subscription_set('" + executor + "', NULL, NULL, 0, 1000, true, NULL, 'soak', 'the soak''s jobs') ->> 'reason'",
	} {
		var refused *string
		if err := s.admin.QueryRow(ctx, sql).Scan(&refused); err != nil {
			return err
		} else if refused != nil && !strings.Contains(*refused, "already") {
			return fmt.Errorf("%s: %s", sql, *refused)
		}
	}
	return nil
}

// produce enqueues the jobs or webhooks with the numbers first, first+of, first+2*of, …, each at
// its time, until ctx ends.
func (s *soak) produce(ctx context.Context, kind string, first, of, perSecond int) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for n := first; ; n += of {
		due := s.began.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
		if pause(ctx, time.Until(due)) != nil {
			return
		}
		// The last call may complete even if ctx ends: otherwise it would be
		// unknown whether its work was acknowledged.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = pgsession.Connect(call, s.dsn(writerLogin))
		}
		if err == nil {
			err = put(call, conn, kind, n)
		}
		cancel()
		if s.ledger.tell(kind, n, err); err != nil {
			s.say("a producer got no answer for %s %d: %v", kind, n, err)
		}
	}
}

func put(ctx context.Context, conn *pgx.Conn, kind string, n int) error {
	if kind == "job" {
		_, err := conn.Exec(ctx, `SELECT public.fn_job_enqueue($2::text, 'soak', 'DOT', pg_catalog.jsonb_build_object('n', $1::int,
			'document', 'A-' || $1::int, 'pages', 12), p_idempotency_key => $1::int::text)`, n, jobKind)
		return err
	}
	_, err := conn.Exec(ctx, `INSERT INTO public.events (event_type, payload) VALUES ($2, pg_catalog.jsonb_build_object('n', $1::int,
		'order', 'A-' || $1::int, 'currency', 'EUR', 'amount', 12.50))`, n, eventType)
	return err
}

// watch takes samples and kills until the duration is over.
func (s *soak) watch(ctx context.Context) error {
	kill, tell := s.kill, s.duration/6
	for next := s.every; next <= s.duration; next = (time.Since(s.began)/s.every + 1) * s.every { // if the machine is slow, samples are left out
		for ; kill < s.duration && kill <= next; kill += s.kill {
			if err := pause(ctx, time.Until(s.began.Add(kill))); err != nil {
				return err
			}
			if err := s.killOne(ctx); err != nil {
				return err
			}
		}
		if err := pause(ctx, time.Until(s.began.Add(next))); err != nil {
			return err
		}
		if err := s.sample(ctx); err != nil {
			return err
		}
		if next >= tell && next < s.duration {
			tell += s.duration / 6
			s.say("so far:")
			table(s.progress, s.samples)
		}
	}
	return nil
}

// killOne kills the last host and starts it again with the same host id.
func (s *soak) killOne(ctx context.Context) error {
	h := s.hosts[len(s.hosts)-1]
	at := time.Now()
	h.kill()
	s.ledger.killed(at, time.Now())
	if err := h.start(ctx); err != nil {
		return err
	}
	took := time.Since(at)
	s.slowest = max(s.slowest, took)
	s.say("kill -9 of host %s; under its id it was ready again after %s", h.id, took.Round(10*time.Millisecond))
	return nil
}

// left is the query for the number of jobs and sagas that are not finished.
const left = `SELECT (SELECT count(*) FROM public.job_queue)::int
	+ (SELECT count(*) FROM public.webhook_delivery_sagas WHERE status NOT IN ('Completed', 'DeadLettered'))::int`

// finish waits until every acknowledged job and webhook is done, and stops the hosts.
func (s *soak) finish(ctx context.Context) error {
	began := time.Now()
	for {
		var n int
		if err := s.admin.QueryRow(ctx, left).Scan(&n); err != nil {
			return err
		}
		jobs, _ := s.ledger.behind("job")
		webhooks, _ := s.ledger.behind("webhook") // the query does not count events without a saga, but the ledger does
		if n+jobs+webhooks == 0 {
			break
		}
		if time.Since(began) > s.patience {
			s.fail("after %s, %d rows of work are left, %d jobs and %d webhooks were not seen", s.patience, n, jobs, webhooks)
			break
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	s.say("all work was done %s after the last was acknowledged", time.Since(began).Round(100*time.Millisecond))
	for _, h := range s.hosts {
		if code := h.stop(); code != 0 {
			s.fail("host %s ended with exit %d", h.id, code)
		}
	}
	if code := s.console.quit(); code != 0 {
		s.fail("the console ended with exit %d", code)
	}
	return s.compare(ctx)
}

// compare counts in the database what the ledger cannot see, such as two
// history rows for one job.
func (s *soak) compare(ctx context.Context) error {
	for what, sql := range map[string]string{
		"jobs have two outcomes":                  "SELECT count(*)::int FROM (SELECT 1 FROM public.job_history GROUP BY job_id HAVING count(*) > 1) x",
		"jobs were made twice for one key":        "SELECT count(*)::int FROM (SELECT 1 FROM public.job_history GROUP BY idempotency_key HAVING count(*) > 1) x",
		"jobs did not succeed":                    "SELECT count(*)::int FROM public.job_history WHERE status <> 'succeeded'",
		"webhooks were completed twice":           "SELECT count(*)::int FROM (SELECT 1 FROM public.webhook_delivery_jobs WHERE status = 'Completed' GROUP BY saga_id HAVING count(*) > 1) x",
		"events have two sagas":                   "SELECT count(*)::int FROM (SELECT 1 FROM public.webhook_delivery_sagas GROUP BY event_id HAVING count(*) > 1) x",
		"dead letters":                            "SELECT (SELECT count(*) FROM public.dead_letters)::int + (SELECT count(*) FROM public.job_dead_letter)::int",
		"jobs more or less than the ledger's":     fmt.Sprintf("SELECT abs(count(*) - %d)::int FROM public.job_history", s.ledger.result("job").acknowledged),
		"webhooks more or less than the ledger's": fmt.Sprintf("SELECT abs(count(*) - %d)::int FROM public.webhook_delivery_sagas WHERE status = 'Completed'", s.ledger.result("webhook").acknowledged),
	} {
		var n int
		if err := s.admin.QueryRow(ctx, sql).Scan(&n); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if n > 0 {
			s.fail("%d %s", n, what)
		}
	}
	return nil
}

// stop ends all processes that still run.
func (s *soak) stop() error {
	for _, h := range s.hosts {
		if h.process != nil {
			h.kill()
		}
	}
	if s.console != nil {
		s.console.kill()
	}
	if s.receiver != nil {
		_ = s.receiver.Close()
	}
	if s.admin != nil {
		s.admin.Close()
	}
	if s.file != nil {
		_ = s.file.Close()
	}
	if s.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.server.Stop(ctx)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return ctx.Err()
	}
}
