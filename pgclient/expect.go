package pgclient

// The check of the setting expect_server: is this the server that the operator means? A physical
// copy of a cluster has the same system identifier as its original, so only the name
// (cluster_name) and the address of the server distinguish them.

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

// serverColumns reads the identity of a server: its cluster_name, and the address and port of this
// connection, which a local socket does not have.
const serverColumns = `pg_catalog.current_setting('cluster_name'::text), COALESCE(pg_catalog.host(pg_catalog.inet_server_addr()), ''),
	COALESCE(pg_catalog.inet_server_port(), 0)`

type server struct {
	cluster, address string
	port             int
}

// unexpected returns a warning if the server is not one of the expected ones; "" = it is, or any
// server is accepted.
func (s server) unexpected(expect []string) string {
	if len(expect) == 0 {
		return ""
	}
	for _, e := range expect {
		if s.is(e) {
			return ""
		}
	}
	where := "on a local socket"
	if s.address != "" {
		where = "at " + net.JoinHostPort(s.address, strconv.Itoa(s.port))
	}
	name := "a server without cluster_name"
	if s.cluster != "" {
		name = "server " + s.cluster
	}
	return fmt.Sprintf("UNEXPECTED SERVER: this is %s %s, expect_server is %s; hosts claim nothing here",
		name, where, strings.Join(expect, ", "))
}

// name returns the cluster_name of the server, or otherwise its address.
func (s server) name() string {
	switch {
	case s.cluster != "":
		return s.cluster
	case s.address == "":
		return "a local socket"
	}
	return net.JoinHostPort(s.address, strconv.Itoa(s.port))
}

// is reports whether the server has this cluster_name, address or address:port.
func (s server) is(expected string) bool {
	if s.cluster != "" && s.cluster == expected {
		return true
	}
	address, err := netip.ParseAddr(s.address)
	if err != nil {
		return false
	}
	if a, err := netip.ParseAddr(strings.Trim(expected, "[]")); err == nil {
		return a.Unmap() == address.Unmap()
	}
	ap, err := netip.ParseAddrPort(expected)
	return err == nil && ap.Addr().Unmap() == address.Unmap() && int(ap.Port()) == s.port
}

// expected refuses a connection to a server that is not one of the expected ones.
func expected(ctx context.Context, conn *pgx.Conn, expect []string) error {
	if len(expect) == 0 {
		return nil
	}
	var s server
	if err := conn.QueryRow(ctx, "SELECT "+serverColumns).Scan(&s.cluster, &s.address, &s.port); err != nil {
		return err
	}
	if why := s.unexpected(expect); why != "" {
		return queue.NewError(queue.KindFailed, why, "expect_server", "connect to the intended server, or add this one to expect_server")
	}
	return nil
}
