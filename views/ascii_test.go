package views_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/views/theme"
)

// With --ascii every pane and every page is ASCII, including text from the database.
func TestASCIIScreens(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono, ASCII: true})
	for worldName, w := range worlds() {
		for name, body := range bodies(w) {
			for _, size := range sizes {
				got := screen(w, name, body, e, size)
				require.NotRegexp(t, `[^\x00-\x7f]`, got, "%s %s %v", worldName, name, size)
			}
		}
	}
}
