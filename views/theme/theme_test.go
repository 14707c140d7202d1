package theme_test

import (
	"reflect"
	"regexp"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/views/theme"
)

func TestWidths(t *testing.T) {
	t.Parallel()
	th := theme.New(theme.Options{})
	for _, s := range []string{"", "plain", "漢字", "👩‍👩‍👧‍👦 x", "é", "a very long line that does not fit"} {
		for w := range 12 {
			require.Equal(t, w, theme.Width(th.Left(s, w)), "%q in %d", s, w)
			require.Equal(t, w, theme.Width(th.Right(s, w)), "%q in %d", s, w)
		}
	}
	require.Equal(t, "ab…", th.Cut("abcd", 3))
	require.Empty(t, theme.Blank(-1))
	require.Len(t, theme.Blank(1000), 1000)
}

// Width has fast paths that do not search for graphemes. Their results equal
// those of the terminal library: for each sign alone, between others, and
// before characters that combine with it.
func TestWidthOfSigns(t *testing.T) {
	t.Parallel()
	for r := rune(0xa0); r < 0x3000; r++ {
		sameWidth(t, "a"+string(r)+"│"+string(r)+"\x1b[m"+string(r)+"\u0301")
		sameWidth(t, string(r)+string(r)+"✖"+string(r))
	}
}

func FuzzWidth(f *testing.F) {
	for _, s := range []string{"", "\x1b[1;38;5;110mDEAD·LETTERS\x1b[m", "\x1b[", "\x1b]8;;http://x/m\x07x", "\x1b[2Jm", "\x1b[?25hm", "\x1bm", "\x1b", "✖\ufe0f", "✓\u200d✓", "\xe2\x94", "\n", "漢│"} {
		f.Add(s)
	}
	f.Fuzz(sameWidth)
}

func sameWidth(t *testing.T, s string) {
	t.Helper()
	if got, want := theme.Width(s), ansi.StringWidth(s); got != want {
		t.Errorf("%q is %d cells wide, not %d", s, got, want)
	}
}

// In mono no escape sequence sets a colour. In no theme do red and green alone distinguish two
// roles.
func TestColours(t *testing.T) {
	t.Parallel()
	colour := regexp.MustCompile(`\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m`)
	green := regexp.MustCompile(`\x1b\[(?:[0-9;]*;)?(?:32|42|92|102)(?:;[0-9;]*)?m`)
	for _, o := range []theme.Options{{}, {Light: true}, {Depth: theme.Sixteen}, {Depth: theme.Sixteen, Light: true}, {Depth: theme.Rich}} {
		th := theme.New(o)
		for _, s := range []theme.Style{th.Text, th.Strong, th.Dim, th.Title, th.Accent, th.Critical, th.Warning, th.Word, th.Alarm, th.Caution, th.Bar, th.Tab, th.Field, th.Caret, th.Button, th.Chosen, th.Edge} {
			for _, p := range []string{s.Paint("x"), s.PaintOn("x")} {
				if o.Depth == theme.Mono {
					require.NotRegexp(t, colour, p)
				}
				require.NotRegexp(t, green, p)
			}
		}
	}
}

func TestGlyphsAreOneCell(t *testing.T) {
	t.Parallel()
	for _, a := range []bool{false, true} {
		g := theme.New(theme.Options{ASCII: a}).G
		for _, s := range append([]string{g.Critical, g.Warning, g.Quiet, g.Good, g.Live, g.Lost, g.Paused, g.Waiting, g.Cursor, g.Mark, g.Stale, g.Ellipsis, g.Times, g.Dot, g.Dash, g.Up, g.Down, g.H, g.V, g.TL, g.TR, g.BL, g.BR, g.Caret}, g.Spark...) {
			require.Equal(t, 1, theme.Width(s), "%q", s)
			if a {
				require.Less(t, s[0], byte(0x7f))
			}
		}
	}
}

// In ASCII, screens keep their widths, and no text is lost.
func TestASCIITwins(t *testing.T) {
	t.Parallel()
	th := theme.New(theme.Options{ASCII: true})
	for r := rune(0xa0); r < 0x3000; r++ {
		s := "a" + string(r) + "│ \x1b[1m" + string(r) + "\x1b[m漢"
		got := th.Twins(s)
		require.NotRegexp(t, `[^\x00-\x7f]`, got, "%q", s)
		require.Equal(t, ansi.StringWidth(s), ansi.StringWidth(got), "%q is %q", s, got)
	}
	require.Equal(t, "a ?? > 3x", th.Twins("a 漢 ≥ 3×"))
	require.Equal(t, "a · b", theme.New(theme.Options{}).Twins("a · b"))
	require.Equal(t, `caf\u00e9 -> \ud83d\ude92 - \xff...`, theme.ASCIIText("café → 🚒 · \xff…"))
	require.Equal(t, "café -> 3x", theme.Spell("café → 3×"))
}

// Every sign that the console draws with has an ASCII twin in the mapping, one cell wide on
// screens.
func TestEveryGlyphHasATwin(t *testing.T) {
	t.Parallel()
	signs, twins := reflect.ValueOf(theme.New(theme.Options{}).G), reflect.ValueOf(theme.New(theme.Options{ASCII: true}).G)
	seen := map[string]string{}
	for i := range signs.NumField() {
		name := signs.Type().Field(i).Name
		if name == "Spark" {
			continue
		}
		sign, twin := signs.Field(i).String(), twins.Field(i).String()
		require.NotContains(t, theme.ASCIIText(sign), `\u`, name)
		require.NotRegexp(t, `[^\x00-\x7f]`, twin, name)
		if name != "Quiet" && name != "Ellipsis" {
			require.Equal(t, theme.Spell(sign), twin, name)
		}
	}
	for _, s := range theme.New(theme.Options{ASCII: true}).G.Spark {
		require.Empty(t, seen[s], "two heights look the same")
		seen[s] = s
	}
	require.Len(t, seen, 8)
}
