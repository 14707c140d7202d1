package pgsession

import (
	"context"
	"net"
	"time"
)

// keepAlive makes the kernel notice within 25 s that the other end of a connection is gone,
// although a caller that waits for an answer sends nothing; on Linux after the time unacknowledged,
// which replaces Count there. The default of pgx is 5 minutes.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}
}

// unacknowledged is how long sent bytes may stay without the other end's acknowledgement, and bytes
// to send may wait for its window to open (Linux). By default the kernel repeats them for a quarter
// of an hour. It is as long as a statement may take: a pooler reads nothing from a client that waits
// for a server connection.
const unacknowledged = time.Minute

// dial opens the connection of a session, and of a cancel request.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive(), Control: limitUnacknowledged}
	return d.DialContext(ctx, network, address)
}
