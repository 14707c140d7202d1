package views_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// The header names the server that answered last, and says if the connection is not encrypted.
func TestHeaderNamesWhoAnswers(t *testing.T) {
	e := env(theme.Options{})
	s := viewstest.Session()
	line := func(server *queue.Server) string {
		return views.Header{Session: &s, Server: server, Now: e.Now}.Line(e, 200)
	}
	require.Contains(t, line(nil), "queue@db1:5432")
	require.Contains(t, line(nil), "TLS")
	require.Contains(t, line(&queue.Server{}), "queue@db1:5432", "a snapshot that was kept")
	now := line(&queue.Server{Address: queue.Clean("db2:5432"), InRecovery: true})
	require.Contains(t, now, "queue@db2:5432")
	require.Contains(t, now, "STANDBY")
	require.NotContains(t, now, "db1")
	s.TLS = false
	require.Contains(t, line(nil), "NOT ENCRYPTED")
	require.NotContains(t, line(nil), "TLS")
	s.Local = true
	require.NotContains(t, line(nil), "ENCRYPTED")
	s.Pooler = true
	require.Contains(t, line(&queue.Server{Address: s.Address, Behind: queue.Clean("blue")}), "pooler to blue")
	require.Contains(t, line(nil), "pooler")
}

// The header names roles as PostgreSQL and the glossary do, or says how many there are.
func TestHeaderNamesRoles(t *testing.T) {
	require.Nil(t, views.RolesShown(nil))
	require.Equal(t, []string{"queue_viewer"}, views.RolesShown([]string{"queue_viewer"}))
	require.Equal(t, []string{"dead_letter_operator, queue_viewer, webhook_worker", "dead_letter_operator +2 roles", "3 roles"},
		views.RolesShown([]string{"queue_viewer", "webhook_worker", "dead_letter_operator"}))
	e := env(theme.Options{})
	s := viewstest.Session()
	wide := views.Header{Session: &s, Actor: "anna", Now: e.Now}.Line(e, 160)
	require.Contains(t, wide, "anna (workflow_admin, dead_letter_operator, queue_viewer)")
	require.Contains(t, views.Header{Session: &s, Actor: "anna", Now: e.Now}.Line(e, 115), "anna (workflow_admin +2 roles)")
}
