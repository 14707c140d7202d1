package pgclient_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// The audit row of an action names the operating-system user who ran the program, marked as
// claimed.
func TestOriginReachesTheAudit(t *testing.T) {
	t.Setenv("SUDO_USER", "anna\x1b[31m")
	t.Setenv("SSH_CONNECTION", "10.0.0.7 50122 10.0.0.4 22")
	w := newWorldAlone(t)
	admin := w.client("workflow_admin", "queue_viewer")
	p := plan(t, admin, queue.Request{Action: queue.ActFlagSet, Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "4"}, Reason: "r"})
	require.EqualValues(t, 1, apply(t, admin, p).Done)
	page, err := admin.List(t.Context(), queue.Query{Kind: queue.ListAudit, Limit: 1})
	require.NoError(t, err)
	var claimed map[string]string
	require.NoError(t, json.Unmarshal(queue.Of[[]queue.AuditEntry](page)[0].Claimed, &claimed))
	require.Equal(t, "10.0.0.7 50122 10.0.0.4 22", claimed["ssh_connection"])
	require.NotContains(t, claimed["sudo_user"], "\x1b")
	require.Contains(t, claimed["sudo_user"], "anna")
	require.NotEmpty(t, claimed["os_user"])
}
