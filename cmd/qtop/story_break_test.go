package main

// An operator handles an incident on random data: the endpoint, the error
// code, the numbers and the other groups of dead letters are drawn by lot.
// During the operation the receiver breaks again, so that the brake pauses the
// operation; then the connection to the database is lost and returns. The test
// records every key: at most 60 are allowed, not counting typed text, and 90 s
// from the first key to the last.

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// mostKeys and mostTime are what an incident may take, typed text apart.
const (
	mostKeys = 60
	mostTime = 90 * time.Second
)

// keyLog presses keys on a screen and records them.
type keyLog struct {
	*screen
	pressed []string
	typed   []string
	began   time.Time
	log     strings.Builder
}

func (h *keyLog) did(what string) { fmt.Fprintf(&h.log, "\n  %-44s", what) }

func (h *keyLog) press(keys ...string) {
	h.t.Helper()
	h.pressed = append(h.pressed, keys...)
	for _, k := range keys {
		name := map[string]string{enter: "enter", tab: "tab", "\x1b": "esc", "\x1b[B": "down"}[k]
		if name == "" {
			name = k
		}
		h.log.WriteString(" " + name)
	}
	h.keys(keys...)
}

// write types text, which does not count as keys.
func (h *keyLog) write(text string) {
	h.t.Helper()
	h.typed = append(h.typed, text)
	h.log.WriteString(" " + strconv.Quote(text))
	h.keys(text)
}

// answer confirms a preview, with the count if one is asked for, and closes the
// result.
func (h *keyLog) answer(button string) {
	h.t.Helper()
	h.match(`\[ ` + button) // wait for the button, because the title is drawn before the plan arrives
	h.quiet()
	if m := regexp.MustCompile(button + ` (\d[\d,]*) `).FindStringSubmatch(h.text()); m != nil {
		h.write(strings.ReplaceAll(m[1], ",", ""))
		h.press(tab)
	}
	h.press(tab, enter)
	h.until("audit")
	h.quiet()
	h.press(enter)
	h.gone("audit ")
}

// took logs the keys and returns the time since the first one. It fails the test if there are too many.
func (h *keyLog) took() time.Duration {
	h.t.Helper()
	d := time.Since(h.began)
	h.t.Logf("%d keys, typed text apart (%d texts), in %s:%s", len(h.pressed), len(h.typed), d.Round(time.Second/10), h.log.String())
	require.NotEmpty(h.t, h.pressed)
	require.LessOrEqual(h.t, len(h.pressed), mostKeys)
	return d
}

func TestStoryReceiverBreaks(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: half a minute; TestStoryAtThreeInTheMorning is its small form")
	}
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	lot := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // data of a test
	codes := []string{"HTTP_503", "HTTP_502", "HTTP_500", "TIMEOUT", "CONNECTION_REFUSED", "TLS_FAILURE"}
	lot.Shuffle(len(codes), func(i, j int) { codes[i], codes[j] = codes[j], codes[i] })
	const size = 50_000
	cause := size + lot.IntN(size/2)
	db := pgtest.New(t)
	x := story{t, db.Conn(t, ""), db}
	require.NoError(t, deadLetters(t.Context(), x.conn, cause, codes[0]))
	for _, code := range codes[1 : 2+lot.IntN(3)] {
		require.NoError(t, deadLetters(t.Context(), x.conn, 10+lot.IntN(size/10), code))
	}
	require.NoError(t, deadJobs(t.Context(), x.conn, 1+lot.IntN(size/20), "kg.reindex", "kg"))
	var broken atomic.Bool
	receiver := &ledger{got: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		receiver.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	_, err := x.conn.Exec(t.Context(), "UPDATE public.subscriptions SET callback_url = $1 WHERE event_type = $2", server.URL+"/hook", "t."+codes[0])
	require.NoError(t, err)
	_, err = x.conn.Exec(t.Context(), "UPDATE public.dot_config SET value = '5' WHERE key = 'webhook.max_attempts'")
	require.NoError(t, err)
	endpoint := strings.TrimPrefix(server.URL, "http://")
	x.host("sender", "saga_orchestrator,webhook_worker,lease_reset_cleaner")
	x.host("runner", "bulk_operation_runner,counter_compactor")
	path := pgtest.NewPath(t, pgtest.TCP(t, db.Server))

	h := &keyLog{screen: openSized(t, 80, 24, pgtest.OverTCP(t, db.DSN(operator(t, db)), path.Addr())), began: time.Now()}
	h.did("the first screen names the cause")
	h.until("DEAD")
	h.until(endpoint) // at this width the error code is cut, so wait for the endpoint
	h.did("the largest group is the first")
	h.press("5")
	h.match(`(?m)` + codes[0][:7] + `.* +` + regexp.QuoteMeta(endpoint) + ` .*` + grouped(cause))

	h.did("plan it: how many, to whom, what blocks")
	h.press("N")
	h.until("Canary")
	h.write("receiver is back")
	h.press(enter)
	h.match(`dead letters +` + strconv.Itoa(cause) + `, as of`)
	require.NotContains(t, h.text(), "blocked", "nothing blocks it")
	h.answer("Plan")
	require.Equal(t, cause, x.number("SELECT frozen_count FROM public.queue_bulk_operation"))

	h.did("start it, and look on")
	h.press("6")
	h.until("planned")
	h.press("S")
	h.answer("Start")
	h.press(enter)
	h.until("Items, latest first")
	x.eventually("it goes on at its rate", func() bool { return x.number("SELECT first_ok FROM public.queue_bulk_operation") > 15 })

	h.did("the receiver breaks: the brake says why")
	broken.Store(true)
	h.until("paused by bulk_operation_runner")
	h.match(`the brake: \d+ of the last \d+ first\s+attempts failed`)
	require.Equal(t, 1, x.number("SELECT count(*) FROM public.queue_operator_action WHERE action = 'bulk_brake'"))
	stopped := x.number(tried)
	require.Less(t, stopped, cause)

	h.did("it is mended: resume, the canary first")
	broken.Store(false)
	h.press("P")
	h.until("paused by")
	h.answer("Resume")
	x.eventually("it goes on", func() bool { return x.number(tried) > stopped+10 })

	h.did("the connection is lost, and comes back")
	path.Cut(true)
	h.until("actions off")
	path.Cut(false)
	h.until("live")
	least := x.number(tried)
	h.wait("exact progress", func(text string) bool {
		m := regexp.MustCompile(`([\d,]+) requeued, ([\d,]+) skipped, ([\d,]+) failed, ([\d,]+) undone`).FindStringSubmatch(text)
		if m == nil {
			return false
		}
		shown := 0
		for _, part := range m[1:] {
			n, err := strconv.Atoi(strings.ReplaceAll(part, ",", ""))
			require.NoError(t, err)
			shown += n
		}
		return shown >= least && shown <= x.number(tried)
	})

	h.did("enough: abort")
	h.press("X")
	h.answer("Abort")
	h.until("aborted")

	h.did("the audit: people's actions, one row for all batches")
	h.press("g", "a")
	for _, action := range []string{"bulk abort", "bulk resume", "bulk brake", "bulk run", "bulk plan"} {
		h.until(action)
	}
	batches := x.number("SELECT count(*) FROM public.queue_operator_action WHERE action = 'dead_letter_requeue'")
	require.Greater(t, batches, 2)
	require.Equal(t, 1, strings.Count(h.text(), "dead letter requeue"), h.text())
	requeued := x.number("SELECT count(*) FROM public.dead_letter_requeues")
	h.match(fmt.Sprintf(`dead letter requeue +%s . operation 1`, grouped(requeued)))
	h.did("the row expands")
	h.press("\x1b[B", "\x1b[B", "\x1b[B", enter)
	h.match(fmt.Sprintf(`%d rows`, batches+5))
	t.Logf("the hands took %s, of %s", h.took().Round(time.Second), mostTime)
	h.press("q")
	h.ends()

	// Nothing was lost and nothing was requeued twice.
	require.Equal(t, requeued, x.number("SELECT requeued FROM public.queue_bulk_operation"))
	require.Equal(t, cause, x.number("SELECT (SELECT count(*) FROM public.dead_letter_open o JOIN public.dead_letters d ON d.id = o.dead_letter_id WHERE d.final_error_code = '"+codes[0]+"') + (SELECT count(DISTINCT dead_letter_id) FROM public.dead_letter_requeues)"))
}
