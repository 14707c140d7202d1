package workerhost_test

import (
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"
)

// arrived returns when the kernel received the last data of a request, however late this process
// reads them.
func arrived(req *http.Request) time.Time {
	at := time.Now()
	conn, ok := req.Context().Value(connKey{}).(*net.TCPConn)
	if !ok {
		return at
	}
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				at = time.Now().Add(-time.Duration(info.Last_data_recv) * time.Millisecond)
			}
		})
	}
	return at
}
