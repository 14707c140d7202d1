package views_test

import (
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// A session that blocks others is critical from the first second of its transaction on: before
// that its locks are those of any busy database.
func TestMomentaryLocksAreNoTrouble(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{})
	pid := int64(7)
	sign := func(open time.Duration, edit func(*queue.Activity)) string {
		begun := e.Now.Add(-open)
		a := queue.Activity{ID: "7", Kind: "session", Pid: &pid, Begun: &begun, State: queue.Clean("active"), Seen: true}
		edit(&a)
		return ansi.Strip(views.Activity([]queue.Activity{a}).Row(0, e).Sign.Text)
	}
	blocks := func(a *queue.Activity) { a.Blocks = []int64{8} }
	waits := func(a *queue.Activity) { a.BlockedBy = []int64{8} }
	require.Equal(t, e.Theme.G.Quiet, sign(900*time.Millisecond, blocks))
	require.Equal(t, e.Theme.G.Critical, sign(time.Second, blocks))
	require.Equal(t, e.Theme.G.Quiet, sign(0, waits))
	require.Equal(t, e.Theme.G.Warning, sign(2*time.Second, waits))
	require.Equal(t, e.Theme.G.Warning, sign(0, func(a *queue.Activity) { a.Seen = false }), "a hidden session may do anything")
	require.Equal(t, e.Theme.G.Critical, sign(0, func(a *queue.Activity) { blocks(a); a.Begun = nil }), "its begin is unknown")
}
