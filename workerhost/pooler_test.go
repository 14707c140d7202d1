package workerhost_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost"
)

// A worker host behind a PgBouncer of the default settings polls and delivers, in
// either mode.
func TestDeliversThroughPooler(t *testing.T) {
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			u, err := url.Parse(w.dsn)
			require.NoError(t, err)
			b := pgtest.NewBouncer(t, w.db, mode, []string{u.User.Username()})
			r := receive(t, ok)
			w.subscribe("pooled", r.URL, nil)
			h := runHost(t, b.DSN(u.User.Username()), workerhost.Options{})
			const n = 200
			w.events("pooled", n)
			w.becomes(n, completed)
			require.Empty(t, w.text("SELECT session_tag FROM public.queue_host"), "a pooler's sessions say nothing of a host")
			require.NoError(t, h.stop())
			once := map[string]bool{}
			for _, got := range r.all() {
				require.Contains(t, string(got.body), "ü 日本", fmt.Sprintf("%q", got.body))
				once[got.id] = true
			}
			require.Len(t, once, n)
		})
	}
}
