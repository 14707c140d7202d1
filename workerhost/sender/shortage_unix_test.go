//go:build unix

// Tests of requests that cannot be sent because the host itself lacks something.
package sender

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// filesUpTo lets this process open no file with a descriptor of n or more, until end is called.
func filesUpTo(t *testing.T, n uint64) (end func()) {
	t.Helper()
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: before.Max}))
	return func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) }
}

// Not parallel, because the test changes the limit of this process.
func TestNoFileDescriptorLeft(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	defer server.Close()
	byName := newSender(t, Config{Allow: loopback(), Lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
		return (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, "ip", host)
	}})
	s := newSender(t, Config{Allow: loopback()})
	end := filesUpTo(t, 0)
	direct := s.Send(t.Context(), Request{URL: server.URL, ID: "a", Timeout: 10 * time.Second})
	named := byName.Send(t.Context(), Request{URL: "http://receiver.invalid", ID: "a", Timeout: 10 * time.Second})
	end()
	require.ErrorContains(t, direct.Shortage, "this host has no file descriptor left: raise its limit of open files")
	require.Equal(t, CodeUnreachable, direct.Code)
	require.ErrorContains(t, named.Shortage, "this host has no file descriptor left", named.Detail)
	require.Equal(t, CodeDNSFailure, named.Code)
	require.Zero(t, requests)
	after := s.Send(t.Context(), Request{URL: server.URL, ID: "a", Timeout: 10 * time.Second})
	require.True(t, after.Delivered, after.Detail)
	require.NoError(t, after.Shortage)
}

func TestConnectShortage(t *testing.T) {
	failed := func(to string, errno syscall.Errno) *failure {
		return connectFailure(netip.MustParseAddrPort(to), &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)})
	}
	for errno, short := range map[syscall.Errno]bool{
		syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOBUFS: true, syscall.ENOMEM: true, syscall.EAGAIN: true,
		syscall.EADDRNOTAVAIL: true, syscall.ECONNREFUSED: false, syscall.ENETUNREACH: false, syscall.EACCES: false, syscall.ETIMEDOUT: false,
	} {
		require.Equal(t, short, failed("127.0.0.1:9", errno).shortage != nil, errno.Error())
	}
	require.ErrorContains(t, failed("127.0.0.1:9", syscall.EAGAIN).shortage, "this host can make no connection at present: widen its range of ports")
	require.ErrorContains(t, ProcessShortage(syscall.EAGAIN), "this host may start no further process: raise its limit of processes")
	// No address of this host leads there (without an interface): that is no lack of ports.
	unreachable := failed("[fe80::1]:9", syscall.EADDRNOTAVAIL)
	require.NoError(t, unreachable.shortage)
	require.Equal(t, CodeUnreachable, unreachable.code)
}

// Of the cause, the resolver of the system keeps the text alone, that of Go also what it could not do.
func TestLookupShortage(t *testing.T) {
	for text, short := range map[string]bool{
		syscall.EMFILE.Error(): true, "dial udp 192.0.2.1:53: socket: " + syscall.EMFILE.Error(): true,
		syscall.ENOMEM.Error(): true, "dial udp 192.0.2.1:53: connect: " + syscall.EAGAIN.Error(): true,
		"no such host": false, "server misbehaving": false, "Temporary failure in name resolution": false,
		"read udp 127.0.0.1:40000->192.0.2.1:53: i/o timeout": false,
	} {
		lack := lookupShortage(&net.DNSError{Err: text, Name: "receiver.example"})
		require.Equal(t, short, lack != nil, text)
		if lack != nil {
			require.NotContains(t, lack.Error(), "process")
		}
	}
}

// While this host cannot open a secret's file, the secret that was read before signs; one that was not read yet is
// missing for want of a file descriptor. That a file was removed is seen nevertheless.
func TestSecretFileWithoutFileDescriptor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(sampleSecret), 0o600))
	read := func() *Secrets {
		s, err := NewSecrets([]SecretSource{{"r", "file:" + path}})
		require.NoError(t, err)
		s.byRef["r"][0].refresh = 0
		return s
	}
	known, unread := read(), read()
	_, err := resolve(known, "r")
	require.NoError(t, err)
	end := filesUpTo(t, 0)
	keys, knownErr := resolve(known, "r")
	_, unreadErr := resolve(unread, "r")
	removed := os.Remove(path)
	_, removedErr := resolve(known, "r")
	end()
	require.NoError(t, knownErr)
	require.Equal(t, [][]byte{sampleKey()}, keys)
	require.ErrorContains(t, unreadErr, "file "+path+": this host has no file descriptor left: raise its limit of open files")
	require.NoError(t, removed)
	require.ErrorContains(t, removedErr, "does not exist")
}

// The root certificates of the system are read before the first handshake: it may come while no file can be opened.
func TestRootCertificatesAreReadAtFirst(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("macOS has no file of root certificates")
	}
	const variable = "QTOP_TEST_ROOTS"
	if url := os.Getenv(variable); url != "" {
		s := New(Config{Allow: loopback()})
		warm, err := net.Listen("tcp", "127.0.0.1:0") // the network poller has its own descriptors
		require.NoError(t, err)
		next, err := os.Open(os.DevNull)
		require.NoError(t, err)
		free := uint64(next.Fd())
		require.NoError(t, next.Close())
		defer filesUpTo(t, free+1)()
		res := s.Send(t.Context(), Request{URL: url, ID: "a", Timeout: 30 * time.Second})
		fmt.Println("outcome:", res.Delivered, res.Detail)
		s.Close()
		_ = warm.Close()
		return
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	require.NoError(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"="+server.URL, "SSL_CERT_FILE="+roots, "SSL_CERT_DIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "outcome: true")
}
