package pgsession_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
)

// The kernel ends a connection whose other end has vanished, long before the limits of the
// statements would.
func TestConnectionsNoticeThatTheServerIsGone(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	for _, more := range []string{"", "&connect_timeout=7"} {
		conn, err := pgsession.Connect(t.Context(), pgtest.OverTCP(t, db.DSN(pgtest.Login(t, db))+more, pgtest.TCP(t, db.Server)))
		require.NoError(t, err)
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		tcp, ok := conn.PgConn().Conn().(*net.TCPConn)
		require.True(t, ok, "%T", conn.PgConn().Conn())
		raw, err := tcp.SyscallConn()
		require.NoError(t, err)
		got := map[int]int{}
		require.NoError(t, raw.Control(func(fd uintptr) {
			for _, option := range []int{unix.TCP_USER_TIMEOUT, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT} {
				got[option], _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option)
			}
		}))
		require.Equal(t, map[int]int{unix.TCP_USER_TIMEOUT: 60_000, unix.TCP_KEEPIDLE: 10, unix.TCP_KEEPINTVL: 5, unix.TCP_KEEPCNT: 3}, got)
	}
}
