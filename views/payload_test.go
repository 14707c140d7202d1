package views_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// The lines of a page, joined again, are the payload: no character is lost at any width, and every
// digit is kept.
func TestPayloadKeepsEveryCharacter(t *testing.T) {
	t.Parallel()
	const payload = `{"n": 12345678901234567890.10, "e": 1E400, "s": "a  b:c,{d}[e]\\\" x", "u": "tệp 漢字", "empty": [{}, [], ""], "long": "`
	text := payload + strings.Repeat("0123456789", 40) + `"}`
	squeezed := func(s string) string { return strings.ReplaceAll(s, " ", "") }
	for w := 20; w <= 200; w += 9 {
		d := viewstest.Detail()
		d.Payload = queue.Clean(text)
		lines := views.DeadLetterPage(d.DeadLetter, &d, env(theme.Options{}), w).Lines
		all := ""
		for _, l := range lines {
			require.LessOrEqual(t, ansi.StringWidth(l), w)
			all += ansi.Strip(l)
		}
		require.Contains(t, squeezed(all), squeezed(text), "at %d", w)
	}
}

// Of a payload of five megabytes, in one line or in a million, a page shows a limited part, and
// says that it is a part.
func TestPayloadOfAnySize(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"one string": `"` + strings.Repeat("x", 5_000_000) + `"`, "numbers": "[" + strings.Repeat("1, ", 1_700_000) + "1]",
		"deep": strings.Repeat("[", 2_500_000) + strings.Repeat("]", 2_500_000), "text": strings.Repeat("漢", 1_700_000),
	} {
		d := viewstest.Detail()
		d.Payload, d.PayloadSize = queue.CleanLong(raw), int64(len(raw))
		p := views.DeadLetterPage(d.DeadLetter, &d, env(theme.Options{}), 80)
		require.Less(t, len(p.Lines), 120_000, name)
		require.Contains(t, ansi.Strip(strings.Join(p.Lines, "\n")), "the first 100,000 of "+views.Count(int64(len(raw))), name)
	}
}

func TestPageFindsWhatTwoLinesShare(t *testing.T) {
	t.Parallel()
	p := views.Page{Lines: []string{"   abc", "   defghi", "   jkl"}}
	for i, has := range []bool{true, false, false} {
		require.Equal(t, has, p.Has(i, "bcde"), fmt.Sprint(i))
	}
	require.False(t, p.Has(0, "fgh"))
	require.True(t, p.Has(1, "FGH"))
	require.True(t, p.Has(1, "hijk"))
}
