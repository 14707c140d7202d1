// Tests on a server whose default isolation level is serializable. Hosts and consoles set the
// level of their sessions; rows that producers write at the default level are routed, claimed and
// delivered.
package workerhost_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

func TestSerializableByDefault(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 100)
	w.exec("ALTER DATABASE " + pgx.Identifier{w.db.Name}.Sanitize() + " SET default_transaction_isolation = serializable")
	r := receive(t, ok)
	w.subscribe("order", r.URL, nil)
	s := &seen{}
	const producers, each = 4, 25
	h := w.run(workerhost.Options{Loops: []string{"job_executor", "job_queue_default", "lease_reaper", "counter_compactor", "webhook_router", "saga_orchestrator", "webhook_worker",
		"lease_reset_cleaner", "stale_heartbeat_check", "metrics_sampler", "config_expiry"},
		Handlers: map[string]handler.Handler{"resize": s, "crop": s}})
	dsn := w.db.DSN(pgtest.Login(t, w.db, "event_ingest_writer"))
	var wg sync.WaitGroup
	errs := make([]error, producers)
	for i := range producers {
		wg.Go(func() {
			errs[i] = func() error {
				pool, err := pgxpool.New(t.Context(), dsn) // a pool of a program without qtop's session settings
				if err != nil {
					return err
				}
				defer pool.Close()
				for n := range each {
					err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
						var level string
						if err := tx.QueryRow(t.Context(), "SHOW transaction_isolation").Scan(&level); err != nil || level != "serializable" {
							return fmt.Errorf("level %q, %w", level, err)
						}
						_, err := tx.Exec(t.Context(), "SELECT public.fn_job_enqueue($1, $2, 'DOT')", []string{"resize", "crop"}[n%2], fmt.Sprintf("d%d", n%5))
						if err == nil {
							_, err = tx.Exec(t.Context(), "INSERT INTO public.events (event_type, payload) VALUES ('order', '{}')")
						}
						return err
					})
					if err != nil {
						return err
					}
				}
				return nil
			}()
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	w.becomes(producers*each, jobsOf, "succeeded")
	w.becomes(producers*each, completed)
	require.Equal(t, producers*each, s.count())
	require.NoError(t, h.stop())
	require.Equal(t, producers*each, r.count())
	var level string
	require.NoError(t, w.admin.QueryRow(context.Background(), "SHOW transaction_isolation").Scan(&level))
	require.Equal(t, "read committed", level, "a session of qtop")
	require.Zero(t, w.int("SELECT count(*)::int FROM public.fn_queue_counter_drift(NULL)"))
}
