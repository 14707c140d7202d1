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

func (s shortage) err() error { return queue.NewError(queue.KindUnavailable, s.what, "", s.do) }

// ofFiles returns what may be lacking to open a file, and also to start a process or to connect.
func ofFiles() []shortage {
	return []shortage{
		{syscall.EMFILE, "this host has no file descriptor left", "raise its limit of open files (systemd: LimitNOFILE, shell: ulimit -n)"},
		{syscall.ENFILE, "this machine has no file descriptor left", "raise the limit of the machine (Linux: fs.file-max), or end what holds so many files open"},
		{syscall.ENOMEM, "this machine has no memory left", "give it more memory, or the host fewer slots (concurrency)"},
		{syscall.ENOBUFS, "this machine has no memory left for network buffers", "give it more memory, or the host fewer slots (concurrency)"},
	}
}

func ofProcesses() []shortage {
	return append(ofFiles(), shortage{
		syscall.EAGAIN, "this host may start no further process",
		"raise its limit of processes (systemd: TasksMax, containers: the limit of pids, shell: ulimit -u)",
	})
}

// ofConnections: EAGAIN means that no local port was left for a UDP socket, or that IPsec has no key for the connection yet.
func ofConnections() []shortage {
	return append(ofFiles(), shortage{
		syscall.EAGAIN, "this host can make no connection at present",
		"widen its range of ports (Linux: net.ipv4.ip_local_port_range); if it uses IPsec, find out why that has no key",
	})
}

// find returns which of all err is about, nil if it has another cause.
func find(err error, all []shortage) *shortage {
	for i := range all {
		if errors.Is(err, all[i].errno) {
			return &all[i]
		}
	}
	return nil
}

func lacking(err error, all []shortage) error {
	if s := find(err, all); s != nil {
		return s.err()
	}
	return nil
}

// ProcessShortage returns what the host lacks, with what to do, if err says that the system did not start a
// process for lack of that; nil for every other error.
func ProcessShortage(err error) error { return lacking(err, ofProcesses()) }

// lookupShortage returns what the host lacks to resolve a name. Of the cause, net.DNSError keeps only the
// text: alone if the resolver of the system was asked, else after what could not be done.
func lookupShortage(err error) error {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		for _, s := range ofConnections() {
			if text := s.errno.Error(); dns.Err == text || strings.HasSuffix(dns.Err, ": "+text) {
				return s.err()
			}
		}
	}
	return lacking(err, ofConnections())
}

// connectShortage returns what the host lacks to connect to target. EADDRNOTAVAIL means that all
// local ports are in use for target, or that this host has no address from which target can be
// reached. The two differ in a UDP socket, for which the ports are counted apart: only in the first case
// it can be connected too. That sends no packet.
func connectShortage(target netip.AddrPort, err error) error {
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return lacking(err, ofConnections())
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
	if err != nil {
		return lacking(err, ofConnections())
	}
	_ = c.Close()
	return queue.NewError(queue.KindUnavailable, "this host has no local port left for a connection to "+target.Addr().String(), "",
		"widen its range of ports (Linux: net.ipv4.ip_local_port_range), or send to it at a lower rate")
}
