package pgerror_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgerror"
)

// answers returns the port of a server that answers a request for TLS with tls, and the start of a session with
// an error; "" = it closes the connection.
func answers(t *testing.T, tls byte, code, message string) int {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			be := pgproto3.NewBackend(conn, conn)
			if m, err := be.ReceiveStartupMessage(); err == nil {
				if _, ssl := m.(*pgproto3.SSLRequest); ssl {
					_, _ = conn.Write([]byte{tls})
				} else if code != "" {
					be.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: message})
					_ = be.Flush()
				}
			}
			_ = conn.Close()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// The message and the remedy of a failed connect are those of the attempt that decided: the last one.
func TestTheLastAttemptDecides(t *testing.T) {
	t.Parallel()
	starting := answers(t, 'N', "57P03", "the database system is starting up")
	wrong := answers(t, 'N', "28P01", `password authentication failed for user "u"`)
	noTLS := answers(t, 'N', "", "")
	closed := answers(t, 'N', "", "")
	of := func(hosts, ports, mode string) string {
		cc, err := pgconn.ParseConfig(fmt.Sprintf("host=%s port=%s user=u password=x dbname=d sslmode=%s", hosts, ports, mode))
		require.NoError(t, err)
		_, err = pgconn.ConnectConfig(context.Background(), cc)
		require.Error(t, err)
		return pgerror.Connect(err).Error()
	}
	two := "127.0.0.1,127.0.0.1"
	text := of(two, fmt.Sprintf("%d,%d", starting, wrong), "disable")
	require.Contains(t, text, `password authentication failed for user "u" (before that: `)
	require.Contains(t, text, "starting up")
	require.Contains(t, text, ": check user, database and password of the connection string")
	text = of(two, fmt.Sprintf("%d,%d", starting, closed), "disable")
	require.Contains(t, text, "check that the server runs and is reachable")
	require.NotRegexp(t, `^FATAL|^the database system`, text)
	text = of(two, fmt.Sprintf("%d,1", noTLS), "require")
	require.Regexp(t, `^no connection to PostgreSQL: dial tcp 127.0.0.1:1: connect: connection refused \(before that: .*refused TLS.*\): check that the server runs`, text)
	text = of(two, fmt.Sprintf("1,%d", noTLS), "require")
	require.Contains(t, text, "refused TLS connection (before that: dial tcp 127.0.0.1:1")
	require.Contains(t, text, "give the server TLS")
	text = of("127.0.0.1", fmt.Sprint(wrong), "prefer") // refused TLS, then the password without
	require.Regexp(t, `^password authentication failed for user "u" \(SQLSTATE 28P01\): check user, database and password`, text)
}
