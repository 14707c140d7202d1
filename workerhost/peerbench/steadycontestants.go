package main

// The contestants of `peerbench steady`. Each handler makes one HTTP request to the same
// receiver.

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// leaseSeconds is after how many seconds the jobs of a killed host are run again, for each
// contestant that has such a setting.
const leaseSeconds = 30

// contestant is a queue with the settings that its users have.
type contestant struct {
	name     string
	version  string                                    // of the queue, and which build of it
	load     string                                    // "jobs", "webhooks" or "routed events"
	long     bool                                      // the phase idle-in-tx lasts for -idle-in-tx, not for -length
	gone     time.Duration                             // jobs that are left are lost after this time without an end of one; 0 = -patience
	needs    func(ctx context.Context) error           // returns why the contestant cannot be measured on this machine; nil = it always can
	install  func(ctx context.Context, w *world) error // installs the queue into an empty database
	host     func(w *world) (*exec.Cmd, error)
	producer func(w *world) (*exec.Cmd, error)
	watched  string // the binary whose console watches the queue; "" = no console
	hot      string // the table that the transactions of the phase active-readers count
	// recorded is an SQL query of all finished jobs: the number, when it was inserted and when it
	// was completed; "" = the queue keeps no finished jobs, and only their starts are known.
	recorded string
}

const (
	jobsLoad     = "jobs"
	webhooksLoad = "webhooks"
	routedLoad   = "routed events"
	pgbossName   = "pg-boss"
	pgqueName    = "PgQue"
)

// contestantsOf returns the contestants in the order in which they are measured.
func (s *steadyRun) contestantsOf() []contestant {
	var cs []contestant
	for _, b := range s.binaries {
		cs = append(cs, s.qtopJobs(b))
	}
	cs = append(cs, steadyRiver(), s.steadyGraphile(), s.steadyPgBoss(), s.steadyPgQue())
	for _, b := range s.binaries {
		cs = append(cs, s.qtopWebhooks(b), s.qtopRouted(b))
	}
	return cs
}

func (s *steadyRun) available(ctx context.Context, who contestant) error {
	if who.needs == nil {
		return nil
	}
	err := who.needs(ctx)
	if err != nil {
		if s.absent == nil {
			s.absent = map[string]error{}
		}
		s.absent[who.name] = err
	}
	return err
}

// qtopOf returns a contestant that runs `qtop worker` with all its loops, and a console. The
// loads of qtop differ only in the arguments.
func qtopOf(b binary, name, load string, setUp func(ctx context.Context, w *world) error, insert producerSpec) contestant {
	return contestant{
		name: name, version: b.version, load: load, watched: b.path,
		install: func(ctx context.Context, w *world) error {
			if err := installQtop(ctx, w, b); err != nil {
				return err
			}
			return setUp(ctx, w)
		},
		host: func(w *world) (*exec.Cmd, error) {
			handlers, err := json.Marshal([]map[string]string{{"kind": "noop", "url": w.url, "timeout": "20s"}})
			cmd := exec.Command(b.path, "worker", "--host-id", "bench", "--executor", qtopExecutor, //nolint:noctx // killed by the phases or at the end
				"--handlers", string(handlers), "--delivery-allow-networks", "127.0.0.0/8", "--delivery-allow-plain-http", "127.0.0.0/8")
			cmd.Env = w.qtopEnv(hostLogin)
			return cmd, err
		},
		producer: func(w *world) (*exec.Cmd, error) {
			insert.DSN = w.dsn(writerLogin)
			return self(producerEnv, insert)
		},
	}
}

// installQtop installs the schema with the binary, so that builds with different schemas can be
// compared.
func installQtop(ctx context.Context, w *world, b binary) error {
	cmd := exec.CommandContext(ctx, b.path, "migrate", "up", "--yes")
	cmd.Env = w.qtopEnv("postgres")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s migrate up: %w: %s", b.path, err, out)
	}
	return w.setUpQtop(ctx)
}

// setUpQtop makes the logins, the executor and the settings of the benchmark.
func (w *world) setUpQtop(ctx context.Context) error {
	if err := w.exec(ctx,
		"CREATE ROLE "+hostLogin+" LOGIN IN ROLE dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner",
		"CREATE ROLE "+writerLogin+" LOGIN IN ROLE event_ingest_writer",
		"CREATE ROLE "+viewerLogin+" LOGIN IN ROLE queue_viewer"); err != nil {
		return err
	}
	for _, sql := range []string{
		"SELECT public.fn_dot_config_set('queue.notify.bridge_enabled', 'true', 'bench', 'measured with wakes', NULL::timestamptz, NULL::timestamptz)",
		fmt.Sprintf("SELECT public.fn_dot_config_set('queue.lease.duration_seconds', '%d', 'bench', 'as its peers', NULL::timestamptz, NULL::timestamptz)", leaseSeconds),
		"SELECT public.fn_queue_heartbeat_register('" + qtopExecutor + "', 'DOT', '{}', 10, 3600, 'bench')",
		"SELECT public.fn_job_subscription_set('" + qtopExecutor + "', NULL, NULL, 0::smallint, 1000000, true, NULL, 'bench', 'measured without a ceiling', false)",
	} {
		if err := w.call(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (s *steadyRun) qtopJobs(b binary) contestant {
	c := qtopOf(b, b.name, jobsLoad, func(context.Context, *world) error { return nil },
		producerSpec{SQL: oneJob, Wake: qtopDomain})
	c.hot, c.long = "public.job_queue", true
	c.recorded = `SELECT (payload ->> 'n')::int, enqueued_at, finished_at FROM public.job_history WHERE status = 'succeeded'`
	return c
}

// The inserts of one webhook event and of one event that is routed, with the number $1.
const (
	oneWebhook = "INSERT INTO public.events (event_type, payload) VALUES ('bench.happened', pg_catalog.jsonb_build_object('n', $1::int))"
	oneEvent   = "SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', 'bench', $1::int::text)"
)

func subscribe(ctx context.Context, w *world) error {
	_, err := w.admin.Exec(ctx, `INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('bench.happened', $1, true, true)`, w.url+"/")
	return err
}

func consume(ctx context.Context, w *world) error {
	if err := w.exec(ctx, "INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')"); err != nil {
		return err
	}
	return w.call(ctx, "SELECT public.fn_consumer_set('bench', 'iu', 'made', 'noop', 'DOT', true, 'bench', 'measured', false)")
}

func (s *steadyRun) qtopWebhooks(b binary) contestant {
	c := qtopOf(b, b.name+", webhooks", webhooksLoad, subscribe, producerSpec{SQL: oneWebhook})
	c.hot = "public.webhook_delivery_jobs"
	c.recorded = `SELECT (e.payload ->> 'n')::int, e.created_at, s.updated_at
		FROM public.webhook_delivery_sagas s JOIN public.events e ON e.id = s.event_id WHERE s.status = 'Completed'`
	return c
}

func (s *steadyRun) qtopRouted(b binary) contestant {
	c := qtopOf(b, b.name+", routed events", routedLoad, consume, producerSpec{SQL: oneEvent})
	c.hot = "public.event_outbox"
	c.recorded = `SELECT e.event_subject_ref::int, e.created_at, h.finished_at
		FROM public.job_history h JOIN public.event_outbox e ON e.id = h.causation_event_id WHERE h.status = 'succeeded'`
	return c
}

func steadyRiver() contestant {
	return contestant{
		name: riverName, version: moduleVersion(riverModule), load: jobsLoad, long: true, hot: "public.river_job",
		install: func(ctx context.Context, w *world) error {
			pool, err := openPool(ctx, w.dsn(peerLogin), 2)
			if err != nil {
				return err
			}
			defer pool.Close()
			m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
			if err == nil {
				_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
			}
			return err
		},
		host: func(w *world) (*exec.Cmd, error) {
			return self(peerHostEnv, peerHostSpec{Peer: riverName, DSN: w.dsn(peerLogin), URL: w.url})
		},
		producer: func(w *world) (*exec.Cmd, error) {
			return self(producerEnv, producerSpec{DSN: w.dsn(peerLogin), River: true})
		},
		recorded: `SELECT (args ->> 'n')::int, created_at, finalized_at FROM public.river_job WHERE state = 'completed'`,
	}
}

func (s *steadyRun) steadyPgQue() contestant {
	return contestant{
		name: pgqueName, version: s.pgqueVersion, load: jobsLoad, hot: "pgque.event_template",
		needs: func(context.Context) error {
			if s.pgque == "" {
				return notRun{"it needs its SQL file: -pgque FILE"}
			}
			return nil
		},
		install: func(ctx context.Context, w *world) error {
			// The file has DO blocks and statements that only psql understands.
			cmd := exec.CommandContext(ctx, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", w.dsn("postgres"), "-f", s.pgque)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("psql -f %s: %w: %s", s.pgque, err, strings.TrimSpace(string(out)))
			}
			return w.exec(ctx, "GRANT pgque_admin TO "+peerLogin, "SELECT pgque.create_queue('bench')", "SELECT pgque.subscribe('bench', 'bench')",
				"SELECT pgque.set_queue_config('bench', 'ticker_max_count', '200')",
				"SELECT pgque.set_queue_config('bench', 'ticker_max_lag', '100 milliseconds')",
				"SELECT pgque.set_queue_config('bench', 'ticker_idle_period', '500 milliseconds')")
		},
		host: func(w *world) (*exec.Cmd, error) {
			return self(peerHostEnv, peerHostSpec{Peer: pgqueName, DSN: w.dsn(peerLogin), URL: w.url})
		},
		producer: func(w *world) (*exec.Cmd, error) {
			return self(producerEnv, producerSpec{DSN: w.dsn(peerLogin), SQL: "SELECT pgque.send('bench', $1::int::text)"})
		},
	}
}
