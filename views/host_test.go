package views_test

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// The sign before the wake stream: urgent if the listener gets no signals,
// quiet if it is switched off on purpose.
func TestWakeStreamSign(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{ASCII: true})
	g := e.Theme.G
	for state, sign := range map[string]string{
		"listening": g.Live, "connecting": g.Warning, "polling": g.Warning, "lost": g.Critical, "off": g.Lost,
	} {
		h := viewstest.Host()
		h.Listener.State = state
		shown := ansi.Strip(strings.Join(views.HostBelow(nil, &h, "", e, views.Size{W: 100, H: 12}), "\n"))
		require.Contains(t, shown, " "+sign+" "+state, "listener %s", state)
	}
}
