package enqueue_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgtest"
)

// In works with a connection of each mode in which pgx can send statements; several poolers need
// other modes than the default.
func TestInWithEachExecMode(t *testing.T) {
	db := pgtest.New(t)
	login := pgtest.Login(t, db, "event_ingest_writer")
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		cfg, err := pgx.ParseConfig(db.DSN(login))
		require.NoError(t, err)
		cfg.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		require.NoError(t, err, mode)
		made, err := enqueue.In(t.Context(), conn, []enqueue.Job{
			{Kind: "k", Domain: "shop", Executor: "DOT", Payload: json.RawMessage(`{"text": "it's \\ \"é\" <&>"}`)},
			{Kind: "k", Domain: "shop", Executor: "DOT", ProcessAfter: new(time.Now())},
		})
		require.NoError(t, err, mode)
		require.Equal(t, 2, made.New, mode)
		var text string
		require.NoError(t, db.Conn(t, "").QueryRow(t.Context(), "SELECT payload ->> 'text' FROM public.job_queue WHERE job_id = $1", made.IDs[0]).Scan(&text))
		require.Equal(t, `it's \ "é" <&>`, text, mode)
		_, err = enqueue.In(t.Context(), conn, nil)
		require.ErrorContains(t, err, "1 to 1000000", mode)
		require.NoError(t, conn.Close(t.Context()))
	}
}

// In sends no wake signal for its jobs, and leaves those of the other rows of the transaction to
// their triggers, unless the caller has turned these off.
func TestInSilencesItsJobsAlone(t *testing.T) {
	db := pgtest.New(t)
	admin := db.Conn(t, "")
	for _, sql := range []string{
		"UPDATE public.dot_config SET value = 'true' WHERE key = 'queue.notify.bridge_enabled'",
		"INSERT INTO public.event_type_registry VALUES ('shop', 'paid', 's', 'immediate')",
	} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	layers := wakeSignals(t, db)
	conn := db.Conn(t, pgtest.Login(t, db, "event_ingest_writer"))
	for _, c := range []struct {
		before string
		want   []string
	}{
		{"SELECT 1", []string{"shop event", "webhook event", "shop job"}},
		{"SET LOCAL qtop.doorbell = ''", []string{"shop event", "webhook event", "shop job"}},
		{"SET LOCAL qtop.doorbell = 'on'", nil},
	} {
		require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), c.before)
			require.NoError(t, err)
			made, err := enqueue.In(t.Context(), tx, []enqueue.Job{{Kind: "k", Domain: "shop", Executor: "DOT"}})
			require.NoError(t, err)
			require.Equal(t, 1, made.New)
			for _, sql := range []string{
				"SELECT public.fn_iu_emit_event('shop', 'paid', 's', 'immediate', 'info', NULL, NULL)",
				"INSERT INTO public.events (event_type, payload) VALUES ('paid', '{}')",
				"SELECT public.fn_job_enqueue('other', 'shop', 'DOT')",
			} {
				_, err := tx.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			return nil
		}))
		require.Equal(t, c.want, layers(), c.before)
	}
	_, err := enqueue.In(t.Context(), conn, []enqueue.Job{{Kind: "k", Domain: "shop", Executor: "DOT"}})
	require.NoError(t, err)
	require.Empty(t, layers(), "no signal for its own jobs")
}

// wakeSignals listens for the wake signals of the domain shop and of webhooks. layers returns those that
// came since its last call.
func wakeSignals(t *testing.T, db *pgtest.DB) (layers func() []string) {
	t.Helper()
	listener := db.Conn(t, "")
	_, err := listener.Exec(t.Context(), "LISTEN queue_wake_shop; LISTEN queue_wake_webhook; LISTEN queue_wake_end")
	require.NoError(t, err)
	end := db.Conn(t, "")
	return func() (got []string) {
		_, err := end.Exec(t.Context(), "SELECT pg_notify('queue_wake_end', '')")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			n, err := listener.WaitForNotification(ctx)
			require.NoError(t, err)
			if n.Channel == "queue_wake_end" {
				return got
			}
			var body struct {
				Layer  string `json:"layer"`
				Domain string `json:"event_domain"`
			}
			require.NoError(t, json.Unmarshal([]byte(n.Payload), &body))
			got = append(got, body.Domain+" "+body.Layer)
		}
	}
}
