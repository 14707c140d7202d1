package queue

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// testFields returns the fields of dead letters, and further fields so that each kind occurs.
func testFields() []Field {
	return append(DeadLetterFields(), Field{Name: "share", Kind: FieldNumber}, Field{Name: "note"})
}

func TestParseFilterCanonical(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"  \t\n ", ""},
		{"code:HTTP_503", "code:HTTP_503"},
		{"CODE:HTTP_503", "code:HTTP_503"},
		{"code:http_*|TIMEOUT", "code:http_*|TIMEOUT"},
		{"code=HTTP_503", "code=HTTP_503"},
		{"code=a*b", "code=a*b"},
		{`code=a\*b`, "code=a*b"},
		{`code:a\*b`, `code:a\*b`},
		{`code:a\bc`, "code:abc"},
		{`code:"a b"`, `code:"a b"`},
		{`code:a\ b`, `code:"a b"`},
		{`code:'a "b'`, `code:"a \"b"`},
		{`code:a"b c"d`, `code:"ab cd"`},
		{`code:a\|b`, `code:"a|b"`},
		{`code:a'b`, `code:a'b`},
		{`code=C:\\x`, `code=C:\\x`},
		{`code:""`, `code:""`},
		{`code=""|x`, `code=""|x`},
		{"!code:x", "!code:x"},
		{"code:x   endpoint:*acme*", "code:x endpoint:*acme*"},
		{"acme", "acme"},
		{"!acme", "!acme"},
		{"acme|beta", "acme|beta"},
		{`"code:x"`, `"code:x"`},
		{`code\:x`, `"code:x"`},
		{`"or"`, `"or"`},
		{`"!x"`, `"!x"`},
		{"don't", "don't"},
		{"id:123", "id:123"},
		{"id:12*", "id:12*"},
		{"id=job:6f1c", "id=job:6f1c"},
		{"id:job:*|event:*", "id:job:*|event:*"},
		{"id>4711", "id>4711"},
		{"id>=+04711", "id>=4711"},
		{"subscription:7", "subscription=7"},
		{"subscription=7|8", "subscription=7|8"},
		{"share>=-0.5", "share>=-0.5"},
		{"share<5.25", "share<5.25"},
		{"age>2h", "age>2h"},
		{"age>90m", "age>1h30m"},
		{"age<=1w", "age<=7d"},
		{"age>1.5h", "age>1h30m"},
		{"age<1500ms", "age<1.5s"},
		{"age<1.001s", "age<1.001s"},
		{"age>0s", "age>0s"},
		{"failed>-30m", "failed>-30m"},
		{"failed>02:00", "failed>02:00"},
		{"failed>02:00:00", "failed>02:00"},
		{"failed>02:00:05", "failed>02:00:05"},
		{"failed<2026-11-20", "failed<2026-11-20T00:00:00Z"},
		{"failed<2026-11-20T02:00", "failed<2026-11-20T02:00:00Z"},
		{`failed<"2026-11-20 02:00"`, "failed<2026-11-20T02:00:00Z"},
		{"failed<2026-11-20T02:00+02:00", "failed<2026-11-20T00:00:00Z"},
		{"failed<2026-11-20T02:00:01.25Z", "failed<2026-11-20T02:00:01.25Z"},
		{"failed<2026-11-20T02:00+02", "failed<2026-11-20T00:00:00Z"},
		{"source:WEBHOOK|job", "source:WEBHOOK|job"},
		{"source:w*", "source:w*"},
		{"state=open", "state=open"},
		{"endpoint:https://x/?a=b", "endpoint:https://x/?a=b"},
		{"code:é東", "code:é東"},
	} {
		t.Run(c.in, func(t *testing.T) {
			f, err := ParseFilter(c.in, testFields())
			require.NoError(t, err)
			require.Equal(t, c.want, f.String())
			require.Equal(t, c.want == "", f.Empty())
			sameFilter(t, f, testFields())
		})
	}
}

// sameFilter requires that parsing the filter's canonical text gives the same terms.
func sameFilter(t *testing.T, f *Filter, fields []Field) {
	t.Helper()
	again, err := ParseFilter(f.String(), fields)
	require.NoError(t, err, "canonical text %q", f.String())
	require.Len(t, again.Terms, len(f.Terms))
	for i := range f.Terms {
		want, got := f.Terms[i], again.Terms[i]
		want.Column, got.Column = 0, 0
		require.Equal(t, want, got, "canonical text %q", f.String())
	}
}

func TestParseFilterErrors(t *testing.T) {
	for _, c := range []struct {
		in     string
		column int
		says   string
	}{
		{"cod:x", 1, "did you mean “code”"},
		{"code:x endpint:y", 8, "did you mean “endpoint”"},
		{"zzzzzz:y", 1, "fields are id, code"},
		{"https://acme", 1, "quote the text"},
		{":x", 1, "no field"},
		{"!=x", 2, "no field"},
		{"code!=x", 5, "!code=…"},
		{"code:", 6, "a value is missing"},
		{"code: x", 6, "a value is missing"},
		{"code:a|", 8, "a value is missing"},
		{"code:a||b", 8, "a value is missing"},
		{"|a", 1, "a value is missing"},
		{"code==x", 6, "quote the value"},
		{"code::x", 6, "quote the value"},
		{"code:!x", 6, "front of the field: !code:…; quote the value"},
		{"code=>x", 6, "quote the value"},
		{"a|code:x", 7, "quote the value"},
		{`"code":x`, 7, "quote the value"},
		{"!", 1, "nothing behind"},
		{"a ! b", 3, "nothing behind"},
		{"!!a", 2, "a second !"},
		{"a or b", 3, "a|b"},
		{"a AND b", 3, "space means and"},
		{"not a", 1, "! means not"},
		{`""`, 1, "an empty word"},
		{`code:"a b`, 6, "not closed"},
		{`code:'a b`, 6, "not closed"},
		{`code:a\`, 7, "backslash"},
		{"code>x", 5, "no order"},
		{"age:2h", 4, "is a duration"},
		{"age=2h", 4, "is a duration"},
		{"age>2", 5, "not a duration"},
		{"age>-2h", 5, "not a duration"},
		{"age>2x", 5, "not a duration"},
		{"age>1000w1000w9000w", 5, "not a duration"},
		{"age>1h|2h", 8, "alternatives"},
		{"failed:-30m", 7, "is a time"},
		{"failed>30m", 8, "-30m"},
		{"failed>25:00", 8, "not a time"},
		{"failed>2026-13-01", 8, "not a time"},
		{"failed>0000-01-01", 8, "not a time"},
		{"subscription:x", 14, "not a number"},
		{"subscription:1*", 14, "not a number"},
		{"share>1e9", 7, "not a number"},
		{"share>1.", 7, "not a number"},
		{"share>" + strings.Repeat("9", 41), 7, "not a number"},
		{"id>job:1", 4, "not a whole number"},
		{"id>99999999999999999999", 4, "not a whole number"},
		{"state:opne", 7, "did you mean “open”"},
		{"state=OPEN", 7, "state is one of open"},
		{"source:webhook|x", 16, "source is one of"},
		{"é code:\u202ex", 8, "⟨U+202E⟩"},
		{"code:\"a\tb\"", 8, "␉"},
		{"code:a\x00", 7, "␀"},
		{"code:a\\\n", 8, "␊"},
		{"cödé:x", 1, "unknown field"},
		{"code:\xff", 6, "not UTF-8"},
		{strings.Repeat("x", filterMaxChars+1), filterMaxChars + 1, "longer than"},
		{strings.Repeat("x ", filterMaxTerms+1), 2*filterMaxTerms + 1, "more than"},
	} {
		t.Run(c.in[:min(len(c.in), 40)], func(t *testing.T) {
			f, err := ParseFilter(c.in, testFields())
			require.Nil(t, f)
			var fe *FilterError
			require.ErrorAs(t, err, &fe)
			require.Contains(t, err.Error(), c.says)
			require.Equal(t, c.column, fe.Column, err.Error())
			require.NotEmpty(t, fe.Do)
			require.Equal(t, Clean(err.Error()).String(), err.Error(), "safe to draw")
		})
	}
}

func TestFilterTreeIsTyped(t *testing.T) {
	f, err := ParseFilter(`!age>=2h30m failed<-1d id>9007199254740993 code:A*|"b c" x`, DeadLetterFields())
	require.NoError(t, err)
	require.Equal(t, []Term{
		{Negate: true, Field: "age", Kind: FieldDuration, Op: OpGe, Column: 1,
			Values: []Value{{Raw: "2h30m", Duration: 150 * time.Minute}}},
		{Field: "failed", Kind: FieldTime, Op: OpLt, Column: 13,
			Values: []Value{{Raw: "-1d", Time: TimeRef{Kind: TimeAgo, Ago: 24 * time.Hour}}}},
		{Field: "id", Kind: FieldID, Op: OpGt, Column: 24, Values: []Value{{Raw: "9007199254740993", Number: 9007199254740992}}},
		{Field: "code", Op: OpGlob, Column: 44, Values: []Value{{Raw: "A*", Glob: true}, {Raw: "b c", Glob: true}}},
		{Op: OpContains, Column: 58, Values: []Value{{Raw: "x", Glob: true}}},
	}, f.Terms)
	require.Equal(t, []string{"id", "code", "endpoint", "domain", "kind", "type", "source", "state"}, f.AnyFields())
}

func TestNilFilter(t *testing.T) {
	var f *Filter
	require.True(t, f.Empty())
	require.Empty(t, f.String())
	require.Empty(t, f.AnyFields())
	require.Nil(t, f.At(time.Time{}))
	require.True(t, f.Match(nil, time.Time{}))
}

func TestFilterMatch(t *testing.T) {
	now := time.Date(2026, 11, 21, 1, 30, 0, 0, time.UTC)
	row := map[string]any{
		"id": "4711", "code": "HTTP_503", "endpoint": Clean("Hooks.acme Example"), "subscription": int64(9007199254740993),
		"age": 3 * time.Hour, "failed": now.Add(-3 * time.Hour), "source": "webhook", "state": "open", "share": 5.5,
	}
	for in, want := range map[string]bool{
		"":                                true,
		"code:http_503":                   true,
		"code:http":                       false,
		"code:*http*":                     true,
		"code:HTTP_?03":                   true,
		`code:HTTP_\?03`:                  false,
		"code=HTTP_503":                   true,
		"code=http_503":                   false,
		"code:x|http_*":                   true,
		"!code:x|http_*":                  false,
		"code:HTTP_503 state:requeued":    false,
		"acme":                            true,
		"ACME":                            true,
		"ac?e":                            true,
		"nothing":                         false,
		"!nothing":                        true,
		"nothing|503":                     true,
		`"acme example"`:                  true,
		"kind:\"\"":                       true,
		"kind=\"\"":                       true,
		"kind:*":                          true,
		"kind:?*":                         false,
		"!kind:x":                         true,
		"id:47*":                          true,
		"id=4711":                         true,
		"id>4710":                         true,
		"id>4711":                         false,
		"id>=4711":                        true,
		"subscription=9007199254740993":   true,
		"subscription:9007199254740992":   false,
		"subscription>9007199254740992":   true,
		"subscription=9007199254740993.0": true,
		"share=5.5":                       true,
		"share>5.49 share<=5.5":           true,
		"age>2h":                          true,
		"age>3h":                          false,
		"age>=3h":                         true,
		"age<3h1ms":                       true,
		"!age>2h":                         false,
		"failed>-4h":                      true,
		"failed>-2h":                      false,
		"failed>02:00":                    true, // yesterday's
		"failed>22:31":                    false,
		"failed>=22:30":                   true,
		"failed<2026-11-21":               true,
		"failed<2026-11-20T02:00":         false,
	} {
		f, err := ParseFilter(in, testFields())
		require.NoError(t, err, in)
		get := func(field string) (any, bool) { v, ok := row[field]; return v, ok }
		require.Equal(t, want, f.Match(get, now), in)
		if strings.Contains(in, "failed") && !strings.Contains(in, ">-") {
			require.Equal(t, want, f.At(now).Match(get, now.Add(96*time.Hour)), "%s, pinned", in)
		}
	}
}

func TestFilterMatchAbsent(t *testing.T) {
	for _, in := range []string{"age>0s", "age<1d", "failed>-1d", "failed<02:00", "subscription=1", "share<5", "id<5", "code:x", "x"} {
		for name, v := range map[string]any{
			"absent": nil, "another type": []int{1}, "zero time": time.Time{}, "text": "job:7", "true": true,
		} {
			get := func(string) (any, bool) { return v, v != nil }
			f, err := ParseFilter(in, testFields())
			require.NoError(t, err)
			require.False(t, f.Match(get, time.Now()), "%s, %s", in, name)
			f, err = ParseFilter("!"+in, testFields())
			require.NoError(t, err)
			require.True(t, f.Match(get, time.Now()), "!%s, %s", in, name)
		}
	}
	f, err := ParseFilter("age>1m", testFields())
	require.NoError(t, err)
	for v, want := range map[any]bool{int64(61): true, int64(60): false, 60.5: true, 61: true, 59: false} {
		require.Equal(t, want, f.Match(func(string) (any, bool) { return v, true }, time.Now()), "%v seconds", v)
	}
}

func TestFilterTimesInALocation(t *testing.T) {
	loc := time.FixedZone("CET", 3600)
	now := time.Date(2026, 11, 21, 1, 30, 0, 0, time.UTC) // 02:30 there
	f, err := ParseFilterIn("failed>02:00 failed<2026-11-21T03:00", DeadLetterFields(), loc)
	require.NoError(t, err)
	require.Equal(t, "failed>02:00 failed<2026-11-21T02:00:00Z", f.String())
	require.Equal(t, "failed>2026-11-21T01:00:00Z failed<2026-11-21T02:00:00Z", f.At(now).String())
	sameFilter(t, f.At(now), DeadLetterFields())
	for in, want := range map[string]string{
		"failed>02:00 age<2h failed>-30m": "failed>2026-11-21T01:00:00Z age<2h failed>-30m",
		"failed<2026-11-21 code:x":        "failed<2026-11-20T23:00:00Z code:x",
		"failed>2026-11-21T01:00Z code:x": "failed>2026-11-21T01:00Z code:x",
		"failed>soon":                     "failed>soon",
		"":                                "",
	} {
		require.Equal(t, want, AbsoluteTimes(in, DeadLetterFields(), now, loc), in)
	}
	nilLoc, err := ParseFilterIn("failed>02:00", DeadLetterFields(), nil)
	require.NoError(t, err)
	require.Equal(t, "failed>2026-11-20T02:00:00Z", nilLoc.At(now).String())
	require.Equal(t, "failed>02:00", nilLoc.String(), "At leaves its filter alone")
}

func TestGlobToLike(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a*b?": "a%b_", "50%_": `50\%\_`, `a\*b\?`: "a*b?", `a\\b`: `a\\b`, `a\%`: `a\%`, `a\`: `a\\`,
	} {
		require.Equal(t, want, GlobToLike(in), in)
	}
}

func TestGlobDoesNotExplode(t *testing.T) {
	start := time.Now()
	require.False(t, matchGlob(strings.Repeat("a*", 200)+"b", strings.Repeat("a", 20_000)))
	require.Less(t, time.Since(start), 5*time.Second)
}

func TestCompleteFilter(t *testing.T) {
	fields := DeadLetterFields()
	for _, c := range []struct {
		in     string // ^ is the cursor
		offers []string
	}{
		{"s^", []string{"subscription=", "source:", "state:"}},
		{"!So^", []string{"!source:"}},
		{"code:x a^", []string{"code:x age>"}},
		{"f^ code:x", []string{"failed> code:x"}},
		{"state:^", []string{"state:open", "state:requeued", "state:resolved"}},
		{"state:RE^", []string{"state:requeued", "state:resolved"}},
		{"!source=webhook|j^", []string{"!source=webhook|job"}},
		{"state:open^", nil},
		{"age>3^", []string{"age>30m"}},
		{"age>=^", []string{"age>=5m", "age>=30m", "age>=2h", "age>=1d"}},
		{"failed<-2^", []string{"failed<-2h"}},
		{"code>^", nil},
		{"nope:^", nil},
		{`endpoint:"a b^`, nil},
		{`endpoint:"a b" st^`, []string{`endpoint:"a b" state:`}},
	} {
		text, behind, _ := strings.Cut(c.in, "^")
		require.Equal(t, c.offers, CompleteFilter(text+behind, utf8.RuneCountInString(text), fields), c.in)
	}
	require.Len(t, CompleteFilter("", 0, fields), len(fields))
	require.NotPanics(t, func() { CompleteFilter("x", -5, fields); CompleteFilter("x\\", 99, fields) })
}

func FuzzParseFilter(f *testing.F) {
	for _, s := range []string{
		"", "code:HTTP_503 !acme|b", `code:"a \"b" x\ y`, "age>1h30m failed<-2d", "failed>02:00 id>5", `a\*b\\ 'x"y'`,
		"share>=-0.5|1", "state:o*", "!!", `code:\`, "code:\u202e\xff", "failed<2026-11-20T02:00:01.25+02:00", `code='!'`,
	} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 21, 1, 30, 0, 0, time.UTC)
	values := []any{nil, "4711", "a b", Clean("x\x1b"), 7, int64(1) << 62, 0.5, now, 2 * time.Hour, struct{}{}}
	f.Fuzz(func(t *testing.T, s string) {
		fields := testFields()
		CompleteFilter(s, len(s)/2, fields)
		f, err := ParseFilter(s, fields)
		if err != nil {
			var fe *FilterError
			if !errors.As(err, &fe) || fe.Column < 1 || fe.Column > utf8.RuneCountInString(s)+1 || fe.What == "" || fe.Do == "" {
				t.Fatalf("%q: %v", s, err)
			}
			if Clean(err.Error()).String() != err.Error() {
				t.Fatalf("error is not safe to draw: %q", err.Error())
			}
			return
		}
		for _, r := range f.String() {
			if Unsafe(r) {
				t.Fatalf("%q: canonical text has %U", s, r)
			}
		}
		sameFilter(t, f, fields)
		sameFilter(t, f.At(now), fields)
		for _, v := range values {
			f.Match(func(string) (any, bool) { return v, v != nil }, now)
		}
		for _, term := range f.Terms {
			for _, v := range term.Values {
				if v.Glob && hasWildcard(v.Raw) != strings.ContainsAny(unescapedLike(GlobToLike(v.Raw)), "%_") {
					t.Fatalf("%q: LIKE %q", v.Raw, GlobToLike(v.Raw))
				}
			}
		}
	})
}

// unescapedLike takes the escaped characters out of a LIKE pattern.
func unescapedLike(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
