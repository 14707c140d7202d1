// What the receiver answered: outcome, Retry-After and the excerpt kept.
package sender

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// maxBodyBytes is read at most; a longer body costs its receiver the
	// kept-alive connection.
	maxBodyBytes = 64 << 10
	maxExcerpt   = 4 << 10
	// keptBytes is the excerpt and one character more, so that the cut falls
	// between characters.
	keptBytes = maxExcerpt + utf8.UTFMax
	// readBuffer holds what is kept and, behind it, room into which the rest of a
	// longer body is read and dropped.
	readBuffer = keptBytes + 8<<10
	// maxRetryAfter keeps absurd values inside what time arithmetic and a
	// timestamptz can hold.
	maxRetryAfter = 366 * 24 * time.Hour
)

// Result is the outcome of one attempt. The response header decides it: a 2xx
// is Delivered even if its body stalls, breaks off or never ends.
//
// An attempt stopped by the caller's context has Code TIMEOUT; the caller tells
// it from a slow receiver by its own ctx.Err().
type Result struct {
	Delivered bool
	Status    int    // 0 when there was no response
	Code      string // "" when Delivered, else HTTP_<status> or a Code constant
	Detail    string // one sanitised line for logs; never a secret, never the URL
	Excerpt   string // start of the response body, at most 4 KiB, valid UTF-8, no control characters
	// RetryAfter is when a 429 or 503 asked to be called again; zero when it did
	// not, or in no usable way. At most maxRetryAfter ahead; the caller clamps.
	RetryAfter time.Time
	Started    time.Time
	Took       time.Duration
}

func (res *Result) fail(code, detail string) {
	res.Delivered = false
	res.Code = code
	res.Detail = clean(detail, maxDetail)
}

// judge fills res. now is when the header arrived.
func (res *Result) judge(resp *http.Response, body *reader, now time.Time) {
	status := resp.StatusCode
	if status < 100 || status > 999 {
		res.fail(CodeProtocolError, "the response has no usable status code")
		return
	}
	res.Status = status
	switch {
	case status >= 200 && status <= 299:
		res.Delivered = true
	default:
		res.fail("HTTP_"+strconv.Itoa(status), strings.TrimSpace("answered "+strconv.Itoa(status)+" "+http.StatusText(status)))
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		res.RetryAfter = retryAfter(resp.Header.Values("Retry-After"), now)
	}
	if status == http.StatusSwitchingProtocols {
		return // its body is the raw connection, not an answer
	}
	res.Excerpt = body.excerpt(resp.Body)
}

// reader reads bodies; it keeps its buffers.
type reader struct{ buffers sync.Pool } // of *[readBuffer]byte

// excerpt reads the body to its end, but at most maxBodyBytes: a connection
// goes back to the pool only when its response was read wholly. How the body
// ends, also by the deadline, does not matter any more.
func (r *reader) excerpt(body io.Reader) string {
	buf, ok := r.buffers.Get().(*[readBuffer]byte)
	if !ok {
		buf = new([readBuffer]byte)
	}
	defer r.buffers.Put(buf)
	kept, total := 0, 0
	for total < maxBodyBytes {
		into := buf[kept:]
		n, err := body.Read(into[:min(len(into), maxBodyBytes-total)])
		total += n
		kept = min(kept+n, keptBytes)
		if err != nil {
			break
		}
	}
	return clean(string(buf[:kept]), maxExcerpt)
}

// retryAfter reads the values of Retry-After: one number of seconds or one HTTP
// date, both per RFC 9110. A past date, "0", several differing values and
// everything else give the zero time: no wish.
func retryAfter(values []string, now time.Time) time.Time {
	if len(values) == 0 {
		return time.Time{}
	}
	value := strings.TrimSpace(values[0])
	for _, other := range values[1:] {
		if strings.TrimSpace(other) != value {
			return time.Time{}
		}
	}
	if value == "" {
		return time.Time{}
	}
	latest := now.Add(maxRetryAfter)
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil, seconds > int64(maxRetryAfter/time.Second): // err: out of range, as all are digits
			return latest
		case seconds == 0:
			return time.Time{}
		}
		return now.Add(time.Duration(seconds) * time.Second)
	}
	at, err := http.ParseTime(value)
	switch {
	case err != nil, !at.After(now):
		return time.Time{}
	case at.After(latest):
		return latest
	}
	return at
}
