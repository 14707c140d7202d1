package pgsession_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
)

// silent returns a resolver in Go whose name server answers nothing.
func silent(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func silentConfig(t *testing.T, dsn string) *pgx.ConnConfig {
	t.Helper()
	cc, err := pgsession.Parse(dsn)
	require.NoError(t, err)
	resolver := silent(t)
	cc.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		if net.ParseIP(host) != nil {
			return []string{host}, nil
		}
		return resolver.LookupHost(ctx, host)
	}
	return cc
}

// A caller that leaves does not wait for the resolver, and many callers cost one lookup at a time.
func TestConnectLeavesAResolverThatDoesNotAnswer(t *testing.T) {
	cc := silentConfig(t, "host=db.invalid user=u sslmode=disable connect_timeout=3600")
	route := &pgsession.Route{}
	before := runtime.NumGoroutine()
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		began := time.Now()
		_, err := route.Connect(ctx, cc)
		require.Error(t, err)
		require.Less(t, time.Since(began), 2*time.Second)
	}
	require.Less(t, runtime.NumGoroutine(), before+10)
}

// The limit for a connect holds for the lookup too, and the error names the host, the resolver and what to do.
func TestTheErrorNamesTheResolver(t *testing.T) {
	cc := silentConfig(t, "host=db.invalid user=u sslmode=disable connect_timeout=1")
	began := time.Now()
	_, err := (&pgsession.Route{}).Connect(t.Context(), cc)
	require.Less(t, time.Since(began), 3*time.Second)
	text := pgerror.Connect(err).Error()
	require.Contains(t, text, "lookup db.invalid on "+pgsession.NameServers()+": no answer after 1s")
	require.Contains(t, text, "check the name servers of this machine")
	require.NotContains(t, text, "\n")
}

// Of several hosts, those that need no lookup are reached in the time of one caller.
func TestAHostWithoutAddressLeavesTimeForTheNext(t *testing.T) {
	db := pgtest.Empty(t)
	real, err := pgsession.Parse(db.DSN(""))
	require.NoError(t, err)
	cc := silentConfig(t, "host=db.invalid,127.0.0.1 user=u sslmode=disable")
	cc.User, cc.Password, cc.Database = real.User, real.Password, real.Database
	cc.Fallbacks[len(cc.Fallbacks)-1].Host, cc.Fallbacks[len(cc.Fallbacks)-1].Port = real.Host, real.Port
	pgsession.LimitConnect(cc, 3*time.Second, 3*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	conn, err := (&pgsession.Route{}).Connect(ctx, cc)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}
