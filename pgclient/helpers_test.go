// Helpers of the tests of this package: a database, clients with given roles, and dead letters made
// through qtop's functions.

package pgclient_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

type world struct {
	t    *testing.T
	db   *pgtest.DB
	root *pgxpool.Pool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newWorldAlone(t)
}

// newWorldAlone is newWorld without t.Parallel, for a test that sets environment variables.
func newWorldAlone(t *testing.T) *world {
	t.Helper()
	db := pgtest.New(t)
	w := &world{t: t, db: db, root: db.Pool(t, "")}
	w.exec("UPDATE public.queue_heartbeat SET last_beat_at = now()")
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.root.Exec(context.Background(), sql, args...)
	require.NoError(w.t, err, sql)
}

func get[T any](w *world, sql string, args ...any) T {
	w.t.Helper()
	var v T
	require.NoError(w.t, w.root.QueryRow(context.Background(), sql, args...).Scan(&v), sql)
	return v
}

// client connects as a new login with these roles.
func (w *world) client(roles ...string) *console {
	w.t.Helper()
	return open(w.t, pgclient.Options{DSN: w.db.DSN(pgtest.Login(w.t, w.db, roles...)), Actor: "ann"})
}

func open(t *testing.T, o pgclient.Options) *console {
	t.Helper()
	o.Actions = actions.Registry()
	c, err := pgclient.Open(context.Background(), o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return &console{c, actions.New(c)}
}

// console is a client with its planner of actions, as the console has them.
type console struct {
	*pgclient.Client
	*actions.Planner
}

// silent registers an executor whose last heartbeat is so many seconds ago.
func (w *world) silent(id string, seconds int) {
	w.t.Helper()
	w.exec(`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds,
		stale_threshold_seconds, registered_by) VALUES ($1, 'Agent', '{}', now() - make_interval(secs => $2), 60, 300, 'test')`, id, seconds)
}

// deadLetter describes a dead letter to be made.
type deadLetter struct {
	eventType, url, code string
	age                  time.Duration
}

// die makes these dead letters in this order: it routes, claims and fails their sagas. Then it
// changes their times, which the schema lets no ordinary login do.
func (w *world) die(deadLetters ...deadLetter) (ids []string) {
	w.t.Helper()
	w.exec("UPDATE public.dot_config SET value = '0' WHERE key = 'webhook.circuit_failures'")
	for _, l := range deadLetters {
		var sub int64
		require.NoError(w.t, w.root.QueryRow(context.Background(), `WITH have AS (
				SELECT id FROM public.subscriptions WHERE event_type = $1 AND callback_url = $2), made AS (
				INSERT INTO public.subscriptions (event_type, callback_url, active, verified, max_attempts)
				SELECT $1, $2, true, true, 1 WHERE NOT EXISTS (SELECT 1 FROM have) RETURNING id)
			SELECT id FROM have UNION ALL SELECT id FROM made`, l.eventType, l.url).Scan(&sub))
		w.exec("INSERT INTO public.events (event_type, payload) VALUES ($1, '{\"password\": \"hidden\", \"n\": 12345678901234567890}')", l.eventType)
		require.Eventually(w.t, func() bool {
			w.exec("SELECT public.fn_webhook_router_run(), public.fn_saga_orchestrator_run()")
			var job int64
			var token string
			err := w.root.QueryRow(context.Background(), "SELECT job_id, lease_token::text FROM public.fn_webhook_job_claim('test', 1)").Scan(&job, &token)
			if err != nil {
				require.ErrorIs(w.t, err, pgx.ErrNoRows)
				return false // the transaction of another test delays the router for a moment
			}
			w.exec("SELECT public.fn_webhook_job_report(jsonb_build_array(jsonb_build_object('job_id', $1::bigint, 'lease_token', $2::text, 'delivered', false, 'code', $3::text)))",
				job, token, l.code)
			w.exec("SELECT public.fn_saga_orchestrator_run()")
			return true
		}, 30*time.Second, 10*time.Millisecond)
		id := get[int64](w, "SELECT max(id) FROM public.dead_letters WHERE subscription_id = $1", sub)
		ids = append(ids, get[string](w, "SELECT $1::bigint::text", id))
		require.NoError(w.t, pgx.BeginFunc(context.Background(), w.root, func(tx pgx.Tx) error {
			for _, sql := range []string{
				"UPDATE public.dead_letters SET failed_at = now() - make_interval(secs => $2) WHERE id = $1",
				"UPDATE public.dead_letter_open SET failed_at = now() - make_interval(secs => $2) WHERE dead_letter_id = $1",
			} {
				if _, err := tx.Exec(context.Background(), "SET LOCAL session_replication_role = replica"); err != nil {
					return err
				}
				if _, err := tx.Exec(context.Background(), sql, id, l.age.Seconds()); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return ids
}

func kind(t *testing.T, want queue.Kind, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, queue.KindOf(err), "%v", err)
	require.NotContains(t, err.Error(), "\n")
}
