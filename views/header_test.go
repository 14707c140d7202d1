package views_test

import (
	"testing"
	"time"

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

// The name of a managed server is long. What an operator must not miss goes before it: that nothing
// is encrypted, that the session or server takes no changes, and who acts.
func TestHeaderKeepsWarningsBesideALongPlace(t *testing.T) {
	e := env(theme.Options{})
	host := "mydb.c9akciq32abc.eu-central-1.rds.amazonaws.com:5432"
	for _, tt := range []struct {
		profile, database, address string
		w                          int
		wants                      []string
	}{
		{"", "orders", host, 200, []string{"orders@" + host, "NOT ENCRYPTED", "READ-ONLY", "16.4 STANDBY", "anna (workflow_admin", "SUPERUSER"}},
		{"", "orders", host, 80, []string{"orders", "NOT ENCRYPTED", "READ-ONLY", "STANDBY", "anna"}},
		{"", "orders", host, 60, []string{"NOT ENCRYPTED", "READ-ONLY"}},
		{"", "customer_orders_production", "10.20.30.40:5432", 80, []string{"NOT ENCRYPTED", "READ-ONLY", "STANDBY"}},
		{"production-eu-central-1", "orders", host, 60, []string{"PRODUCT…", "NOT ENCRYPTED"}},
		{"production-eu-central-1", "customer_orders_production", host, 80, []string{"PRODUCTI…", "customer…", "NOT ENCRYPTED", "READ-ONLY", "STANDBY", "anna"}},
	} {
		s := viewstest.Session()
		s.TLS, s.Local, s.ReadOnly, s.InRecovery, s.Superuser = false, false, true, true, true
		s.Database, s.Address = queue.Clean(tt.database), queue.Clean(tt.address)
		line := views.Header{Profile: tt.profile, Session: &s, Actor: "anna", Now: e.Now}.Line(e, tt.w)
		require.Equal(t, tt.w, theme.Width(line))
		for _, want := range tt.wants {
			require.Contains(t, line, want, "%d columns: %q", tt.w, line)
		}
	}
	s := viewstest.Session()
	s.Database, s.Address = queue.Clean("orders"), queue.Clean(host)
	line := views.Header{Session: &s, Actor: "anna", Now: e.Now}.Line(e, 80)
	require.Contains(t, line, "orders@mydb ", "without warnings the host is named, by its first label")
	require.Contains(t, line, "anna")
}

// However long the names of the profile, the database and the actor are, the header shows the
// beginning of each, and every warning; the clock gives way.
func TestHeaderKeepsTheBeginningOfEveryName(t *testing.T) {
	e := env(theme.Options{})
	long := "customer_orders_production_of_the_largest_tenant_in_the_south"
	for _, tt := range []struct {
		profile, database, actor string
		w                        int
		plain                    bool // the connection is not encrypted
		link                     queue.Link
		age                      time.Duration
		wants                    []string
	}{
		{"production-europe-west-1-primary-cluster", "orders", "anna", 60, false, queue.Link{State: "live"}, 0, []string{" PRODUCTION-EUROPE-WES…  orders · anna", "● live", "00:14:07"}},
		{"production-europe-west-1-primary-cluster", long, "anna", 60, false, queue.Link{State: "live"}, 0, []string{" PRODUCTION-EU…  custome", "anna", "● live"}},
		{"production-europe-west-1-primary-cluster", long, "anna.von.bergmann@customer.example", 60, false, queue.Link{State: "live"}, 0, []string{" PRODUCT", "custome", "anna.v"}},
		{"production-europe-west-1-primary-cluster", "orders", "anna", 60, true, queue.Link{State: "lost"}, 95 * time.Hour, []string{" PRODUCT…  orders@db1 · NOT ENCRYPTED", "LOST, 95h 00m old"}},
		{"", long, "anna.von.bergmann@customer.example", 60, false, queue.Link{State: "live"}, 0, []string{"custome", "anna.von.bergm"}},
		{"production-europe-west-1-primary-cluster", long, "anna", 80, false, queue.Link{State: "live"}, 0, []string{" PRODUCTION-EUROPE-WEST", "customer_orders", "anna", "00:14:07"}},
	} {
		s := viewstest.Session()
		s.TLS, s.Local = !tt.plain, false
		s.Database = queue.Clean(tt.database)
		line := views.Header{
			Profile: tt.profile, Production: true, Session: &s, Server: &queue.Server{}, Actor: tt.actor, Link: tt.link, Age: tt.age, Now: e.Now,
		}.Line(e, tt.w)
		require.Equal(t, tt.w, theme.Width(line))
		for _, want := range tt.wants {
			require.Contains(t, line, want, "%d columns: %q", tt.w, line)
		}
	}
}

// Beside a snapshot the header does not say that the database has not answered: only its login was
// not read.
func TestHeaderWithoutALogin(t *testing.T) {
	e := env(theme.Options{})
	require.Contains(t, views.Header{Now: e.Now}.Line(e, 80), "no answer from the database yet")
	line := views.Header{Server: &queue.Server{Address: queue.Clean("db1:5432")}, Link: queue.Link{State: "live"}, Now: e.Now}.Line(e, 80)
	require.NotContains(t, line, "no answer")
	require.Contains(t, line, "db1:5432 login not read")
}
