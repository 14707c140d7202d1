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
	// maxBodyBytes is how many bytes of a response body are read at most. After a longer body the
	// connection is not reused.
	maxBodyBytes = 64 << 10
	maxExcerpt   = 4 << 10
	// keptBytes is the excerpt plus one character, so that the excerpt can end between two
	// characters.
	keptBytes = maxExcerpt + utf8.UTFMax
	// readBuffer has room for the kept part and, after it, for the part of a longer body that is
	// read and dropped.
	readBuffer = keptBytes + 8<<10
	// maxRetryAfter bounds the Retry-After of a response: a larger value could overflow a
	// time.Duration or a timestamptz.
	maxRetryAfter = 366 * 24 * time.Hour
)

// Result is the outcome of one attempt. The response header decides it: a 2xx is Delivered
// even if its body stalls, breaks off or never ends.
//
// When the caller's context ends the attempt, Code is TIMEOUT, as for a slow receiver; the caller
// can check its ctx.Err() to distinguish the two.
type Result struct {
	Delivered bool
	Status    int    // 0 when there was no response
	Code      string // "" when Delivered, else HTTP_<status> or a Code constant
	// Shortage is what the host itself lacked, such as file descriptors, so that it could not connect:
	// nothing was sent, and the receiver is not at fault. nil = nothing.
	Shortage error
	Detail   string // one sanitised line for logs; never a secret, never the URL
	Excerpt  string // start of the response body, at most 4 KiB, valid UTF-8, no control characters, no token of the URL
	// RetryAfter is the time at which a 429 or 503 response asked for the next attempt; zero if
	// the response has no Retry-After or an unusable one, by the clock of Request.ClockAhead. It is
	// at most 366 days ahead; the caller may use a lower bound.
	RetryAfter time.Time
	Started    time.Time
	Took       time.Duration
}

func (res *Result) fail(code, detail string) {
	res.Delivered = false
	res.Code = code
	res.Detail = clean(detail, maxDetail)
}

// judge sets the outcome from the response. now is the time at which the header arrived, by the
// clock by which RetryAfter is read.
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
		return // after 101 the body is the raw connection
	}
	res.Excerpt = body.excerpt(resp.Body)
}

// reader reads response bodies and reuses its buffers.
type reader struct{ buffers sync.Pool } // of *[readBuffer]byte

// excerpt reads at most maxBodyBytes of the body and returns the start. It reads to the end, if
// it can, because net/http reuses a connection only after the whole response was read. Errors
// while reading, also the deadline, are ignored.
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

// retryAfter parses the values of Retry-After: one number of seconds or one HTTP date, as in RFC
// 9110. For a past date, "0", several different values and all other text it returns the zero
// time.
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
		case err != nil, seconds > int64(maxRetryAfter/time.Second): // all characters are digits, so an error means out of range
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
