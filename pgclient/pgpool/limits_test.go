package pgpool_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgpool"
)

// connect_timeout of the operator is in force. Without it, the servers of a connection string share
// the time of a read, so that the last of them is tried before the read ends.
func TestConnectTimeoutOfEachServer(t *testing.T) {
	for dsn, want := range map[string]time.Duration{
		"host=a sslmode=disable":                        5 * time.Second,
		"host=a sslmode=allow":                          5 * time.Second,
		"host=localhost sslmode=prefer":                 5 * time.Second, // one server, two attempts
		"host=a connect_timeout=2":                      2 * time.Second,
		"host=a connect_timeout=0":                      5 * time.Second,
		"host=a connect_timeout=30":                     5 * time.Second,
		"host=a connect_timeout=9999999999":             5 * time.Second, // more than time.Duration holds
		"postgres://a,b/app?connect_timeout=9999999999": 5 * time.Second / 3,
		"postgres://a,b/app":                            5 * time.Second / 3,
		"postgres://a,b,c/app":                          5 * time.Second / 4,
		"postgres://a:1,a:2/app?sslmode=disable":        5 * time.Second / 3,
		"postgres://a,b/app?connect_timeout=2":          2 * time.Second,
		"postgres://localhost,b/app?connect_timeout=30": 5 * time.Second,
	} {
		cc, err := pgpool.ParseDSN(dsn)
		require.NoError(t, err)
		pgpool.SetSession(cc, "test", pgpool.ReadTimeout)
		require.Equal(t, want, cc.ConnectTimeout, dsn)
	}
}
