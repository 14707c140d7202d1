// Tests of Retry-After: from a receiver's response to the time of the next attempt.
package workerhost_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
)

// The next attempt is never before the time of the retry schedule and never after the cap;
// between the two, the Retry-After of the receiver decides.
func TestRetryAfterEndsInTheSchedule(t *testing.T) {
	t.Parallel()
	const base, limit = 100, 1000 // seconds
	w := newWorld(t, "webhook.retry_schedule", fmt.Sprintf("%ds 1d", base), "webhook.retry_after_cap_seconds", fmt.Sprint(limit))
	in := func(d time.Duration, layout string) string { return time.Now().UTC().Add(d).Format(layout) }
	const rfc850 = "Monday, 02-Jan-06 15:04:05 GMT"
	type wish struct {
		status   int
		values   []string
		from, to float64 // seconds from the settling to the next attempt
		code     string
	}
	var wishes []wish
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		code := fmt.Sprintf("HTTP_%d", status)
		ask := func(from, to float64, values ...string) {
			wishes = append(wishes, wish{status, values, from, to, code})
		}
		// the wait is counted from the response, so the time until its settling shortens it
		asked := func(values ...string) { ask(400, 501, values...) }
		none := func(values ...string) { ask(0.8*base, 1.2*base, values...) } // the first wait of the schedule
		none()
		none("")
		none("0")
		none("-1")
		none("-500")
		none("+500")
		none("NaN")
		none("Inf")
		none("5.5")
		none("500.0")
		none("1e9")
		none("0x1f4")
		none("٥٠٠") // Arabic digits
		none("５００") // full-width digits
		none("500 seconds")
		none("500;600")
		none("500", "600")
		none("600", "500", "500")
		none("500", "")
		none(in(-time.Hour, http.TimeFormat))
		none(in(-time.Hour, rfc850))
		none("Thu, 01 Jan 1970 00:00:00 GMT")
		none("Sat, 31 Feb 2099 00:00:00 GMT")
		none("Mon, 01 Jan -001 00:00:00 GMT")
		none(in(500*time.Second, time.RFC3339))
		none("5") // earlier than the schedule
		none("1")
		none(in(20*time.Second, http.TimeFormat))
		asked("500")
		asked("  500\t")
		asked("000000500")
		asked("500", "500")
		asked(in(500*time.Second, http.TimeFormat))
		asked(in(500*time.Second, rfc850))
		asked(in(500*time.Second, time.ANSIC))
		ask(limit-1, limit, "2000")
		ask(limit-1, limit, "99999999999999999999")
		ask(limit-1, limit, strings.Repeat("9", 20_000))
		ask(limit-1, limit, in(90*24*time.Hour, http.TimeFormat))
		ask(limit-1, limit, "Fri, 31 Dec 9999 23:59:59 GMT")
		for _, broken := range []string{strings.Repeat("5", 1<<20), "\x01500"} {
			wishes = append(wishes, wish{status, []string{broken}, 0.8 * base, 1.2 * base, "PROTOCOL_ERROR"})
		}
	}
	for _, status := range []int{http.StatusInternalServerError, http.StatusNotFound, http.StatusFound} {
		wishes = append(wishes, wish{status, []string{"500"}, 0.8 * base, 1.2 * base, fmt.Sprintf("HTTP_%d", status)})
	}

	r := receive(t, func(rw http.ResponseWriter, req *http.Request) {
		i, _ := strconv.Atoi(strings.TrimPrefix(req.URL.Path, "/"))
		rw.Header()["Retry-After"] = wishes[i].values
		rw.WriteHeader(wishes[i].status)
	})
	for i := range wishes {
		w.subscribe("order.created", fmt.Sprintf("%s/%d", r.URL, i), nil)
	}
	w.run(workerhost.Options{})
	w.events("order.created", 1)
	w.becomes(len(wishes), "SELECT count(*)::int FROM public.webhook_delivery_sagas WHERE status = 'PendingRetry'")

	rows, err := w.admin.Query(t.Context(), `SELECT substring(u.callback_url FROM '[0-9]+$')::int, j.error_code,
		extract(epoch FROM s.next_attempt_at - j.settled_at)::float8
		FROM public.webhook_delivery_sagas s JOIN public.webhook_delivery_jobs j ON j.saga_id = s.id
		JOIN public.subscriptions u ON u.id = s.subscription_id`)
	require.NoError(t, err)
	var i int
	var code string
	var wait float64
	seen := 0
	_, err = pgx.ForEachRow(rows, []any{&i, &code, &wait}, func() error {
		seen++
		what := wishes[i]
		shown := fmt.Sprintf("%d with %.60q", what.status, what.values)
		if code != what.code || wait < what.from || wait > what.to {
			t.Errorf("%s: %s, next attempt after %.3f s and not %.0f to %.0f s as %s", shown, code, wait, what.from, what.to, what.code)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, len(wishes), seen)
	require.Equal(t, len(wishes), r.count(), "one request each")
}
