package demo

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// The first screen shows a critical silence of 95 hours, in a database in which nothing has run
// yet.
func TestIncidentIsAnAlert(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	require.NoError(t, incident(t.Context(), conn))
	var alert string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT kind || ' ' || severity || ' ' || age_seconds / 3600 || ' ' || state
		FROM public.v_queue_alert WHERE subject = $1`, SilentLoop).Scan(&alert))
	require.Equal(t, "silence critical 95 open", alert)
}

// A demo in the database of an earlier demo (qtop demo --keep) goes on with its rows, sends to its
// own receivers, and makes no second incident.
func TestPrepareAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	const state = `SELECT concat_ws(' ', (SELECT count(*) FROM public.event_type_registry WHERE description = 'demo traffic'),
		(SELECT count(*) FROM public.job_subscription), (SELECT count(*) FROM public.queue_heartbeat),
		(SELECT last_beat_at FROM public.queue_heartbeat WHERE executor_id = $1))`
	t.Cleanup(func() { // the server is shared with other tests
		for _, role := range []string{Operator, Admin, Viewer, HostUser, Producer} {
			_, err := conn.Exec(context.Background(), "DROP ROLE IF EXISTS "+role)
			require.NoError(t, err)
		}
	})
	var first string
	for i := range 2 {
		d := New(db.DSN, slog.New(slog.DiscardHandler))
		require.NoError(t, d.Prepare(t.Context(), db.DSN("")))
		t.Cleanup(d.Stop)
		rows, err := conn.Query(t.Context(), "SELECT callback_url FROM public.subscriptions WHERE active AND verified ORDER BY id")
		require.NoError(t, err)
		urls, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Len(t, urls, len(d.receivers))
		for n, r := range d.receivers {
			require.Equal(t, r.url(), urls[n])
		}
		var got string
		require.NoError(t, conn.QueryRow(t.Context(), state, SilentLoop).Scan(&got))
		if i == 0 {
			first = got
		}
		require.Equal(t, first, got)
	}
}

// The receiver that is down answers with 503, and takes requests when it is back.
func TestReceiverThatComesBack(t *testing.T) {
	t.Parallel()
	answer := func(back time.Duration) int {
		w := httptest.NewRecorder()
		ok := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
		downUntil(time.Now().Add(back), ok)(w, httptest.NewRequest(http.MethodPost, "/hook", http.NoBody))
		return w.Code
	}
	require.Equal(t, http.StatusServiceUnavailable, answer(backAfter))
	require.Equal(t, http.StatusNoContent, answer(-time.Second))
}
