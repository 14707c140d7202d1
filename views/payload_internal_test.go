package views

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// million returns a function that draws the page of a payload with a million
// numbers. Every key press draws it, while the payload is revealed.
func million() func() *pageBuilder {
	text := queue.CleanLong("[" + strings.Repeat("1, ", 1_000_000) + "1]")
	e := Env{Theme: theme.New(theme.Options{})}
	return func() *pageBuilder {
		p := newPage(e, 120)
		p.payload(text, queue.Text{}, int64(text.Len()), 10)
		return p
	}
}

func BenchmarkLargePayload(b *testing.B) {
	draw := million()
	for b.Loop() {
		draw()
	}
}

// A key press costs at most three allocations per line of the page, whatever the size of the
// payload.
func TestLargePayloadIsCheap(t *testing.T) { // not parallel: the allocations of another test would be counted too
	draw := million()
	lines := len(draw().lines)
	require.Greater(t, lines, 10_000)
	require.Less(t, testing.AllocsPerRun(2, func() { draw() }), float64(3*lines))
}
