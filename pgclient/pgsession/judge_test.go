package pgsession_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
)

// A parameter that only libpq knows is refused by its name before any connection: the driver would
// send it to the server as a setting.
func TestParametersOfLibpqAlone(t *testing.T) {
	for dsn, name := range map[string]string{
		"postgres://ann@db.example/shop?gssencmode=disable":    "gssencmode",
		"host=db.example hostaddr=192.0.2.1 sslmode=require":   "hostaddr",
		"host=/tmp keepalives=1 connect_timeout=5":             "keepalives",
		"postgresql://db.example/shop?sslcrl=%2Fetc%2Fcrl.pem": "sslcrl",
	} {
		_, err := pgsession.Parse(dsn)
		require.ErrorContains(t, err, "the connection has the parameter "+name+" of libpq, which qtop's driver does not know", dsn)
		require.Equal(t, queue.KindConfig, queue.KindOf(err), dsn)
	}
	t.Setenv("PGHOST", "")
	t.Setenv("PGSERVICE", "")
	t.Setenv("PGHOSTADDR", "192.0.2.1")
	for _, dsn := range []string{"", "dbname=shop", "postgres:///shop", "postgres://ann@/shop?application_name=x", "postgres://:5432/shop", "postgres://ann@:5432/shop", "postgres://?dbname=x"} {
		_, err := pgsession.Parse(dsn)
		require.ErrorContains(t, err, "nothing names the server but PGHOSTADDR", dsn)
	}
	for _, dsn := range []string{"host=/tmp", "postgres://db.example", "postgres://db.example:5432?dbname=x", "postgres://[::1]:5432/shop", "postgres://ann@db.example/shop", "postgres:///shop?host=/tmp"} {
		_, err := pgsession.Parse(dsn)
		require.NoError(t, err, dsn)
	}
	services := filepath.Join(t.TempDir(), "services")
	require.NoError(t, os.WriteFile(services, []byte("[shop]\nhost=db.example\nload_balance_hosts=random\n"), 0o600))
	_, err := pgsession.Parse("service=shop servicefile=" + services)
	require.ErrorContains(t, err, "load_balance_hosts")
	for _, dsn := range []string{"host=/tmp application_name=x options='-c geqo=off' TimeZone=UTC", "postgres://ann@db.example/shop?channel_binding=require&require_auth=scram-sha-256&search_path=public"} {
		_, err := pgsession.Parse(dsn)
		require.NoError(t, err, dsn)
	}
}
