package demo

import (
	"testing"

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
