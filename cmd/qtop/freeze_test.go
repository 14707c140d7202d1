package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// hands operates the console in a test: it presses keys, which are counted,
// and types text, which is not.
type hands struct {
	*screen
	pressed *[]string
}

func (h hands) press(keys ...string) {
	h.t.Helper()
	for _, k := range keys {
		name := map[string]string{enter: "enter", tab: "tab", "\x1b": "esc", "\x1b[Z": "shift+tab", " ": "space", "\x01": "ctrl+a"}[k]
		*h.pressed = append(*h.pressed, cmp.Or(name, k))
	}
	h.keys(keys...)
}

func (h hands) write(text string) {
	h.t.Helper()
	*h.pressed = append(*h.pressed, "‹"+text+"›")
	h.keys(text)
}

// count returns how many keys were pressed, without typed text, and logs them.
func (h hands) count() (n int) {
	for _, k := range *h.pressed {
		if !strings.HasPrefix(k, "‹") {
			n++
		}
	}
	h.t.Logf("%d keys: %s", n, strings.Join(*h.pressed, " "))
	return n
}

// confirm answers a preview: it types the count, if one is asked for, and
// presses the button.
func (h hands) confirm(button string) {
	h.t.Helper()
	h.until(button)
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

// 50,000 dead letters of three endpoints can be frozen with at most 12 keys,
// not counting typed text, in two ways: by selecting their groups, and by the
// button for all rows that match the filter.
func TestFreezingThreeEndpointsTakesTwelveKeys(t *testing.T) {
	t.Parallel()
	each := 300
	if os.Getenv("QTOP_TEST_FULL") != "" {
		each = 17_000
	}
	db := pgtest.New(t)
	x := story{t, db.Conn(t, ""), db}
	cause := fmt.Sprintf("HTTP_5%d", rand.IntN(10))
	for _, n := range []string{"1", "2", "3"} {
		require.NoError(t, deadLetters(t.Context(), x.conn, each, cause+n))
	}
	require.NoError(t, deadLetters(t.Context(), x.conn, each/10, "TIMEOUT"))
	dsn := db.DSN(operator(t, db))
	all := grouped(3 * each)
	for i, way := range []func(h hands){
		func(h hands) { // select the three groups
			h.press(" ", " ", " ")
			h.until("3 selected")
			h.press("N")
			h.until("3 groups: ")
			h.write("the receiver is back")
			h.press(enter)
		},
		func(h hands) { // filter, take one of the matching groups, then widen to all that match
			h.press("/")
			h.write("code:" + cause + "*")
			h.press(enter)
			h.until("3 of 4 rows")
			h.press("N")
			h.until("Canary")
			h.write("the receiver is back")
			h.press(enter)
			h.until("All " + all + " that match")
			h.quiet()
			h.press("\x1b[Z", enter) // the last button
		},
	} {
		h := hands{openSized(t, 80, 24, dsn), &[]string{}}
		h.until("DEAD")
		h.press("5")
		h.until("4 rows")
		way(h)
		h.until("How many") // now the preview is that of all matching rows
		h.until("Plan " + all)
		for _, n := range []string{"1", "2", "3"} {
			h.until(strings.ToLower(cause) + n + ".example")
		}
		h.confirm("Plan")
		require.LessOrEqual(t, h.count(), 12)
		require.Equal(t, 3*each, x.number(fmt.Sprintf("SELECT frozen_count FROM public.queue_bulk_operation ORDER BY operation_id OFFSET %d LIMIT 1", i)))
		h.keys("q")
		h.ends()
	}
}
