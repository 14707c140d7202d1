package sender

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/qtop/qtop/pgclient/queue"
)

// A shortage is something that the host itself lacks, so that a request or a command cannot begin. It
// says nothing about the receiver or the job. Neither a missing file or right nor an argument list
// that is too long is one.
type shortage struct {
	errno    syscall.Errno
	what, do string
}

func shortages() []shortage {
	return []shortage{
		{syscall.EMFILE, "this host has no file descriptor left", "raise its limit of open files (systemd: LimitNOFILE, shell: ulimit -n)"},
		{syscall.ENFILE, "this machine has no file descriptor left", "raise the limit of the machine (Linux: fs.file-max), or end what holds so many files open"},
		{syscall.EAGAIN, "this host may start no further process", "raise its limit of processes (systemd: TasksMax, containers: the limit of pids, shell: ulimit -u)"},
		{syscall.ENOMEM, "this machine has no memory left", "give it more memory, or the host fewer slots (concurrency)"},
		{syscall.ENOBUFS, "this machine has no memory left for network buffers", "give it more memory, or the host fewer slots (concurrency)"},
	}
}

func (s shortage) err() error { return queue.NewError(queue.KindUnavailable, s.what, "", s.do) }

// Shortage returns what the host lacks, with what to do, if err says that the system refused a file, a
// process or a connection for lack of that; nil for every other error.
func Shortage(err error) error {
	for _, s := range shortages() {
		if errors.Is(err, s.errno) {
			return s.err()
		}
	}
	return nil
}

// lookupShortage is Shortage for the error of a name resolution: of the cause, net.DNSError keeps only the text.
func lookupShortage(err error) error {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		for _, s := range shortages() {
			if strings.HasSuffix(dns.Err, ": "+s.errno.Error()) {
				return s.err()
			}
		}
	}
	return Shortage(err)
}

// connectShortage is Shortage for the error of a connection to target. EADDRNOTAVAIL means that all
// local ports are in use for target, or that this host has no address from which target can be
// reached. The two differ in a UDP socket, for which the ports are counted apart: only in the first case
// it can be connected too. That sends no packet.
func connectShortage(target netip.AddrPort, err error) error {
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return Shortage(err)
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
	if err != nil {
		return Shortage(err)
	}
	_ = c.Close()
	return queue.NewError(queue.KindUnavailable, "this host has no local port left for a connection to "+target.Addr().String(), "",
		"widen its range of ports (Linux: net.ipv4.ip_local_port_range), or send to it at a lower rate")
}
