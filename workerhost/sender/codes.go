package sender

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// Error codes of Result.Code; a response without success has the code HTTP_<status>.
const (
	CodeTimeout           = "TIMEOUT"
	CodeDNSFailure        = "DNS_FAILURE"
	CodeConnectionRefused = "CONNECTION_REFUSED"
	CodeConnectionReset   = "CONNECTION_RESET"
	CodeTLSFailure        = "TLS_FAILURE"
	CodeProtocolError     = "PROTOCOL_ERROR"
	CodeUnreachable       = "UNREACHABLE"
	CodeAddressRefused    = "ADDRESS_REFUSED"
	CodeBadURL            = "BAD_URL"
	CodeSigningFailed     = "SIGNING_FAILED"
	CodeWorkerPanic       = "WORKER_PANIC"
)

// failure is an error with the code for Result.Code.
type failure struct {
	code, detail string
	shortage     error // Result.Shortage
}

func (f *failure) Error() string { return f.code + ": " + f.detail }

// classify returns the code and detail for an error of build or RoundTrip.
func classify(ctx context.Context, err error) (code, detail string) {
	var known *failure
	if errors.As(err, &known) {
		return known.code, known.detail
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return CodeTimeout, "stopped by the caller before the response"
	case ctx.Err() != nil:
		return CodeTimeout, "no response within the time for the whole request"
	case isTimeout(err):
		return CodeTimeout, "no response header in time"
	case isReset(err):
		return CodeConnectionReset, "the connection ended before the response: " + err.Error()
	case isUnreachable(err):
		return CodeUnreachable, err.Error()
	case isTLS(err):
		return CodeTLSFailure, err.Error()
	}
	return CodeProtocolError, err.Error()
}

func lookupFailure(host string, err error) error {
	var dns *net.DNSError
	var known *failure // of a lookup that panics
	lack := lookupShortage(err)
	switch {
	case errors.As(err, &known):
		return known
	case lack != nil:
		return &failure{CodeDNSFailure, "looking up " + host + ": " + err.Error(), lack}
	case errors.As(err, &dns) && dns.IsNotFound:
		// For three different causes the resolver returns the same error, so
		// the text names all three.
		return &failure{code: CodeDNSFailure, detail: "DNS has no address for " + host + ": there is no such name, it has no address record, or its CNAME leads to none"}
	case isTimeout(err):
		return &failure{code: CodeDNSFailure, detail: "looking up " + host + " took too long: " + err.Error()}
	}
	return &failure{code: CodeDNSFailure, detail: "looking up " + host + ": " + err.Error()}
}

func connectFailure(target netip.AddrPort, err error) *failure {
	code := CodeUnreachable // no route, no permission, …
	lack := connectShortage(target, err)
	switch {
	case lack != nil:
	case errors.Is(err, syscall.ECONNREFUSED):
		code = CodeConnectionRefused
	case isTimeout(err):
		return &failure{code: CodeTimeout, detail: fmt.Sprintf("connecting to %s took too long", target)}
	case isReset(err):
		code = CodeConnectionReset
	}
	return &failure{code, err.Error(), lack}
}

func handshakeFailure(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil || isTimeout(err):
		return &failure{code: CodeTimeout, detail: "the TLS handshake took too long"}
	case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		return &failure{code: CodeConnectionReset, detail: "the connection was reset in the TLS handshake"}
	}
	return &failure{code: CodeTLSFailure, detail: "TLS handshake: " + err.Error()}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// isReset reports whether the peer reset or closed the connection: for a request without a
// response there is no difference.
func isReset(err error) bool {
	for _, end := range []error{syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, end) {
			return true
		}
	}
	// net/http does not export this error: the peer closed a kept-alive connection while the next
	// request was written to it.
	return strings.Contains(err.Error(), "server closed idle connection")
}

func isUnreachable(err error) bool {
	return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.ENETDOWN)
}

// isTLS reports whether err is a TLS failure that came after the handshake: an
// alert sent or received, a broken record, a certificate refused late.
func isTLS(err error) bool {
	var op *net.OpError
	var record tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	return errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error") ||
		errors.As(err, &record) || errors.As(err, &cert) || errors.As(err, &authority)
}
