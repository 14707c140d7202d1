package views

import (
	"strings"
	"testing"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// An array of a million numbers, revealed: what each key costs on its page.
func BenchmarkLargePayload(b *testing.B) {
	text := queue.CleanLong("[" + strings.Repeat("1, ", 1_000_000) + "1]")
	e := Env{Theme: theme.New(theme.Options{})}
	for b.Loop() {
		p := newPage(e, 120)
		p.payload(text, queue.Text{}, int64(text.Len()), 10)
	}
}
