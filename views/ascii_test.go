package views_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/views/theme"
)

// With --ascii no pane and no page shows a sign that only a complete font has.
func TestASCIIHasNoOtherSigns(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono, ASCII: true})
	for worldName, w := range worlds() {
		for name, body := range bodies(w) {
			for _, size := range sizes {
				got := screen(w, name, body, e, size)
				require.NotRegexp(t, "[\u00d7\u00b7\u2013-\u2027\u2190-\u22ff\u2500-\u27bf\u240a]", got, "%s %s %v", worldName, name, size)
			}
		}
	}
	require.Equal(t, "a · b", theme.New(theme.Options{}).Twins("a · b"))
}
