package sender

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Request is one delivery attempt.
type Request struct {
	URL string
	// ID is the webhook-id: visible ASCII without full stop (which separates the parts of the
	// signed text). Any other ID, for instance one with CR or LF, fails with SIGNING_FAILED,
	// also in unsigned requests.
	ID string
	// Body is sent byte for byte. The caller must not change it, not even after Send: after a
	// timeout the connection may still read it for a moment.
	Body []byte
	// Secrets sign the request, one signature for each secret. nil = unsigned. An empty list or
	// an empty secret fails with SIGNING_FAILED, because a signature was intended.
	Secrets [][]byte
	// Header holds further header lines, one value each. They cannot replace the header lines
	// that every request has.
	Header map[string]string
	// Timeout bounds the whole request, from the dial to the last byte read. If it is not
	// positive, Send dials nothing and fails with TIMEOUT.
	Timeout time.Duration
	// ClockAhead is how far the right clock, such as that of the database server, is ahead of this
	// host's. The webhook-timestamp is the time of that clock, because receivers refuse a signature
	// whose time is minutes off; Result.RetryAfter is read by it too.
	ClockAhead time.Duration
}

// build checks everything that can be checked without the network and returns the HTTP request.
func (r Request) build(ctx context.Context, userAgent []string, now time.Time) (*http.Request, error) {
	u, err := judgeURL(r.URL)
	if err != nil {
		return nil, err
	}
	timestamp := now.Add(r.ClockAhead).Unix()
	header := http.Header{
		"Content-Type":      []string{"application/json"},
		"User-Agent":        userAgent,
		"Webhook-Id":        []string{r.ID},
		"Webhook-Timestamp": []string{strconv.FormatInt(timestamp, 10)},
	}
	if err := checkID(r.ID); err != nil {
		return nil, err
	}
	if r.Secrets != nil {
		signatures, err := sign(r.ID, timestamp, r.Body, r.Secrets)
		if err != nil {
			return nil, err
		}
		header["Webhook-Signature"] = []string{signatures}
	}
	for name, value := range r.Header {
		name = http.CanonicalHeaderKey(name)
		if name == "Idempotency-Key" {
			// With this header net/http may send a request twice.
			name = "idempotency-key"
		}
		if header[name] == nil {
			header[name] = []string{value}
		}
	}
	req := &http.Request{
		Method:        http.MethodPost,
		URL:           u,
		Host:          u.Host,
		Header:        header,
		Body:          http.NoBody,
		ContentLength: int64(len(r.Body)),
	}
	if len(r.Body) > 0 {
		// GetBody lets net/http use another connection when a pooled connection was closed before
		// a byte was written. After the first byte net/http never repeats a POST.
		req.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(r.Body)), nil
		}
		req.Body, _ = req.GetBody()
	}
	return req.WithContext(withDialDeadline(ctx)), nil
}

// HeaderValue returns text as visible ASCII: every other byte, and the percent sign, is
// percent-encoded, so that no text can break the header line.
func HeaderValue(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// userAgent returns the value of User-Agent, which is a valid header value for any version.
func userAgent(version string) string {
	b := []byte("qtop/" + version)
	for i, c := range b {
		if c <= ' ' || c >= 0x7f {
			b[i] = '-'
		}
	}
	return string(b)
}
