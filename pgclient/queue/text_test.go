package queue

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestCleanMarksWhatActsOrDeceives(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"empty", "", ""},
		{"plain", "HTTP_503 <a&b>", "HTTP_503 <a&b>"},
		{"letters", "Zürich 東京 שלום", "Zürich 東京 שלום"},
		{"escape", "a\x1b[31mb", "a␛[31mb"},
		{"osc 52", "\x1b]52;c;aGk=\x07", "␛]52;c;aGk=␇"},
		{"nul and del", "\x00\x7f", "␀␡"},
		{"newline and tab", "a\r\n\tb", "a␍␊␉b"},
		{"c1 character", "\u009b31m", "⟨9B⟩31m"},
		{"c1 byte", "\x9b31m", "⟨x9B⟩31m"},
		{"invalid bytes", "a\xff\xc3(", "a⟨xFF⟩⟨xC3⟩("},
		{"surrogate bytes", "\xed\xa0\x80", "⟨xED⟩⟨xA0⟩⟨x80⟩"},
		{"replacement character", "\ufffd", "\ufffd"},
		{"bidi override", "\u202egpj.exe", "⟨U+202E⟩gpj.exe"},
		{"bidi isolate and arabic mark", "\u2066\u2069\u061c", "⟨U+2066⟩⟨U+2069⟩⟨U+061C⟩"},
		{"zero-width", "a\u200bb\u200d\u2060\ufeff", "a⟨U+200B⟩b⟨U+200D⟩⟨U+2060⟩⟨U+FEFF⟩"},
		{"soft hyphen", "a\u00adb", "a⟨U+00AD⟩b"},
		{"tag", "\U000e0041", "⟨U+E0041⟩"},
		{"variation selectors", "\u2764\ufe0f\U000e0100", "\u2764⟨U+FE0F⟩⟨U+E0100⟩"},
		{"fillers", "\u115f\u1160\u3164\uffa0", "⟨U+115F⟩⟨U+1160⟩⟨U+3164⟩⟨U+FFA0⟩"},
		{"grapheme joiner", "a\u034f", "a⟨U+034F⟩"},
		{"interlinear", "\ufff9", "⟨U+FFF9⟩"},
		{"separators", "a\u2028b\u2029", "a⟨U+2028⟩b⟨U+2029⟩"},
		{"next line", "\u0085", "⟨85⟩"},
		{"noncharacters", "\ufffe\ufdd0\U0010ffff", "⟨U+FFFE⟩⟨U+FDD0⟩⟨U+10FFFF⟩"},
		{"private use", "\ue0a0\U000f0000", "⟨U+E0A0⟩⟨U+F0000⟩"},
		{"blank glyph", "\u2800", "⟨U+2800⟩"},
		{"no-break space", "10\u00a0000", "10\u00a0000"},
		{"accents", "e\u0301a\u0300\u0301\u0302\u0303", "e\u0301a\u0300\u0301\u0302\u0303"},
		{"pile", "a" + strings.Repeat("\u0301", 10) + "b", "a\u0301\u0301\u0301\u0301⟨+6⟩b"},
		{"mark without a letter", "\u0301a", "◌\u0301a"},
		{"mark on a mark", "\x1b\u0301\u202e\u0301", "␛◌\u0301⟨U+202E⟩◌\u0301"},
		{"pile behind a pile", "a" + strings.Repeat("\u0301", 5) + "\x00" + strings.Repeat("\u0301", 6), "a\u0301\u0301\u0301\u0301⟨+1⟩␀◌\u0301\u0301\u0301\u0301⟨+2⟩"},
		{"conjunct", "स्त्री राष्ट्र", "स्त्री राष्ट्र"},
		{"jamo syllables", "\u1112\u1161\u11ab\u1100\u1173\u11af", "\u1112\u1161\u11ab\u1100\u1173\u11af"},
		{"endless syllable", strings.Repeat("\u1100", 40), strings.Repeat("\u1100", 17) + "⟨+23⟩"},
		{"endless conjunct", strings.Repeat("क्", 20), strings.Repeat("क्", 8) + "क⟨+23⟩"},
		{"skin tones", "👍🏽🏽a🏽", "👍🏽⟨U+1F3FD⟩a⟨U+1F3FD⟩"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Clean(c.raw)
			require.Equal(t, c.want, got.String())
			require.Equal(t, got, Clean(got.String()), "cleaning twice changes nothing")
		})
	}
}

func TestUnsafeCoversTheTables(t *testing.T) {
	for r := rune(-1); r <= unicode.MaxRune+1; r++ {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Cs, unicode.Co, unicode.Zl, unicode.Zp,
			unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Noncharacter_Code_Point) {
			require.True(t, Unsafe(r), "%U", r)
		}
		if Unsafe(r) && unicode.In(r, unicode.Lu, unicode.Ll, unicode.N, unicode.P, unicode.Zs) {
			t.Fatalf("%U is a letter, number, punctuation or space", r)
		}
	}
	require.True(t, Unsafe(-1))
	require.True(t, Unsafe(unicode.MaxRune+1))
}

func TestCleanIsBounded(t *testing.T) {
	for name, unit := range map[string]string{
		"plain": "x", "letters": "ü", "wide": "東", "nul": "\x00", "invalid": "\xff", "tags": "\U000e0041", "marks": "\u0301",
		"jamo": "\u1100", "lines": "a\n",
	} {
		for _, size := range []int{textLimit - 40, textLimit - 1, textLimit, textLimit + 1, textLimit + 7, 1 << 20} {
			raw := strings.Repeat(unit, size/len(unit)+1)
			got := Clean(raw)
			require.LessOrEqual(t, got.Len(), textLimit, name)
			require.True(t, utf8.ValidString(got.String()), name)
			require.Equal(t, got, Clean(got.String()), name)
			if len(raw) > textLimit {
				require.Regexp(t, `…\(\+[0-9]+ bytes\)$`, got.String(), name)
			}
		}
	}
	require.Equal(t, strings.Repeat("x", textLimit), Clean(strings.Repeat("x", textLimit)).String())
	cut := Clean(strings.Repeat("x", 1<<20)).String()
	require.Equal(t, strings.Repeat("x", textLimit-tailRoom)+"…(+983072 bytes)", cut)
}

func TestCleanCostsWhatIsKept(t *testing.T) {
	huge := strings.Repeat("\u0301\x1b", 8<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_ = Clean(huge)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20), "bytes for a value of 24 MiB")
}

func TestTextIsAValue(t *testing.T) {
	var zero Text
	require.True(t, zero.Empty())
	require.True(t, zero.IsZero())
	require.Equal(t, zero, Clean(""))
	require.True(t, Clean("a\x1b") == Clean("a\x1b"), "texts compare")
	require.Equal(t, 4, Clean("a\x1b").Len())
	require.False(t, Clean("a").Empty())
}

func TestTextJSON(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`null`, ``},
		{`""`, ``},
		{`"a\u001b[1m\u202e"`, `a␛[1m⟨U+202E⟩`},
		{`"\ud800"`, "\ufffd"},
		{`12345678901234567890.10`, `12345678901234567890.10`},
		{`true`, `true`},
		{` { "a" : [ 1, "\u001b" ] } `, `{"a":[1,"\u001b"]}`},
		{`["x` + "\u202e" + `"]`, `["x⟨U+202E⟩"]`},
	} {
		got := Clean("before")
		require.NoError(t, json.Unmarshal([]byte(c.in), &got), c.in)
		require.Equal(t, c.want, got.String(), c.in)
	}
	var bad Text
	require.Error(t, json.Unmarshal([]byte(`{"a":`), &bad))
	require.Error(t, bad.UnmarshalJSON([]byte(`{"a":`)))
	require.Error(t, bad.UnmarshalJSON([]byte(`"a`)))

	type row struct {
		A Text          `json:"a"`
		B Text          `json:"b,omitzero"`
		M map[Text]Text `json:"m,omitempty"`
	}
	in := row{A: Clean("q\"b\\s\x1b<é"), M: map[Text]Text{Clean("k\n"): Clean("v")}}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	require.NoError(t, enc.Encode(in))
	require.Equal(t, `{"a":"q\"b\\s␛<é","m":{"k␊":"v"}}`+"\n", out.String())
	var back row
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, in, back)
}

func TestTextScan(t *testing.T) {
	got := Clean("before")
	require.NoError(t, got.Scan("a\x1b"))
	require.Equal(t, "a␛", got.String())
	require.NoError(t, got.Scan([]byte("b\x00")))
	require.Equal(t, "b␀", got.String())
	require.NoError(t, got.Scan(nil))
	require.True(t, got.Empty())
	require.ErrorContains(t, got.Scan(7), "cast it to text")
	require.NoError(t, got.UnmarshalText([]byte("c\t")))
	require.Equal(t, "c␉", got.String())
	b, err := got.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "c␉", string(b))
}

func TestLines(t *testing.T) {
	show := func(raw string) []string {
		var out []string
		for _, l := range Lines(raw) {
			out = append(out, l.String())
		}
		return out
	}
	require.Nil(t, show(""))
	require.Equal(t, []string{"a"}, show("a\n"))
	require.Equal(t, []string{"a", "", "    b␛", "c␍d"}, show("a\n\n\tb\x1b\r\nc\rd"))
	many := Lines(strings.Repeat("x\n", linesMaxCount+10))
	require.Len(t, many, linesMaxCount+1)
	require.Equal(t, "…(+20 bytes)", many[linesMaxCount].String())
	long := Lines(strings.Repeat("é", 1<<20) + "!")
	require.Len(t, long, 2)
	require.Equal(t, "…(+1048577 bytes)", long[1].String())
}

func TestASCII(t *testing.T) {
	for raw, want := range map[string]string{
		"plain":                           "plain",
		"\x1b[1m\u009b\u202e\xff":         "<ESC>[1m<9B><U+202E><xFF>",
		"a\n\t\x00\x7f\r":                 "a<LF><TAB><NUL><DEL><CR>",
		"Zürich":                          `Z\u{FC}rich`,
		"😀":                               `\u{1F600}`,
		"\u0301":                          `\u{25CC}\u{301}`,
		"…":                               "...",
		"a\u0301\u0301\u0301\u0301\u0301": `a\u{301}\u{301}\u{301}\u{301}<+1>`,
		"␠":                               "<SP>",
	} {
		require.Equal(t, want, ASCII(Clean(raw)), "%q", raw)
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{
		"", "plain", "\x1b]52;c;aGk=\x07", "\u009b", "\xff\xc3(", "\u202e\u2066", "a\u0301\u0301\u0301\u0301\u0301\u0301",
		"\u0301", "⟨+1⟩\u0301", "👍🏽🏽", "क्क्क्क्क्क्क्क्क्क्क्क्", "\u1100\u1100\u1161\u11a8", "\u0d4e\u0d4e\u200d",
		strings.Repeat("\u0d4e", 20) + "\x00", strings.Repeat("क्", 20) + "\u0301", "\uff9e\uff9f", "␛\u0301", "\U000e0041",
		strings.Repeat("\x00", textLimit/3+2), strings.Repeat("é", textLimit/2) + "\u0301\u0301",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got := Clean(raw)
		s := got.String()
		if !utf8.ValidString(s) {
			t.Fatalf("not UTF-8: %q", s)
		}
		for _, r := range s {
			if Unsafe(r) || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Cs, unicode.Co) {
				t.Fatalf("%U in %q", r, s)
			}
		}
		if again := Clean(s); again != got {
			t.Fatalf("not stable: %q then %q", s, again)
		}
		if got.Len() > textLimit {
			t.Fatalf("%d bytes", got.Len())
		}
		for _, b := range []byte(ASCII(got)) {
			if b < 0x20 || b > 0x7e {
				t.Fatalf("byte %x in the ASCII form of %q", b, s)
			}
		}
		b, err := json.Marshal(got)
		var back Text
		if err != nil || json.Unmarshal(b, &back) != nil || back != got {
			t.Fatalf("JSON %s of %q: %v", b, s, err)
		}
		for _, l := range Lines(raw) {
			if Clean(l.String()) != l {
				t.Fatalf("line %q", l)
			}
		}
	})
}
