package pgclient_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// An executor or tick worker that has never sent a heartbeat has none in the snapshot, neither among
// the executors nor in the health: the time of its registration is no heartbeat. The first heartbeat
// or run ends that.
func TestNoHeartbeatBeforeTheFirst(t *testing.T) {
	w := newWorld(t)
	c := w.client("queue_viewer")
	register := func() {
		w.exec(`SELECT public.fn_queue_executor_register(p_executor_id => 'batch_1', p_kind => 'Agent', p_domain_scope => '{}',
			p_expected_cadence_seconds => 60, p_stale_threshold_seconds => 300, p_owner_role => session_user::text, p_actor => 'ann')`)
	}
	beats := func() map[string]bool {
		t.Helper()
		s, err := c.Snapshot(context.Background(), 0)
		require.NoError(t, err)
		out := map[string]bool{}
		for _, x := range s.Executors {
			out[x.ID.String()] = x.LastBeatAt != nil
			require.Equal(t, x.LastBeatAt != nil, x.AgeSeconds != nil, x.ID)
			h, ok := queue.Find(s.Health, func(h queue.HealthRow) bool { return h.Source.String() == "heartbeat" && h.Subject == x.ID })
			require.True(t, ok, x.ID)
			require.Equal(t, x.LastBeatAt != nil, h.LastSeenAt != nil, x.ID)
			require.Equal(t, x.LastBeatAt != nil, h.AgeSeconds != nil, x.ID)
		}
		return out
	}
	register()
	fresh := beats()
	require.Greater(t, len(fresh), 10)
	for id, beat := range fresh {
		require.False(t, beat, id)
	}
	w.exec("SELECT public.fn_queue_tick_run('config_expiry', 'external')")
	w.exec("SELECT public.fn_queue_heartbeat_write('batch_1', '{}', 'batch-host/1')")
	now := beats()
	require.True(t, now["config_expiry"])
	require.True(t, now["batch_1"])
	require.False(t, now["webhook_router"])
	w.exec("SELECT public.fn_queue_heartbeat_deregister('batch_1', 'ann', 'r')")
	register()
	require.False(t, beats()["batch_1"], "registered again, with another host perhaps")
}
