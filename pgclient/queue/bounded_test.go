package queue

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBoundJSON(t *testing.T) {
	long := strings.Repeat("é\"\\", FieldMost)
	many := make([]string, 20_000)
	for i := range many {
		many[i] = "domain_of_some_length"
	}
	members := map[string]int{}
	for i := range 100_000 {
		members["k"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+strings.Repeat("y", i/1000)] = i
	}
	rows := make([]map[string]any, 3000)
	for i := range rows {
		rows[i] = map[string]any{"n": i, "name": "a row of a list"}
	}
	deep := strings.Repeat(`{"a":[`, 5000) + `"` + strings.Repeat("z", 100_000) + `"` + strings.Repeat("]}", 5000)
	encode := func(v any) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		require.NoError(t, e.Encode(v))
		return strings.TrimSuffix(b.String(), "\n")
	}
	read := func(text string) (out map[string]any) {
		require.NoError(t, json.Unmarshal([]byte(BoundJSON(text)), &out), "%.300s", BoundJSON(text))
		return out
	}

	whole := encode(map[string]any{"rows": rows})
	require.Equal(t, whole, BoundJSON(whole), "a list of rows is no field")
	require.Equal(t, `{"a":1}`, BoundJSON(`{"a":1}`))

	out := read(encode(map[string]any{"error": long, "id": "x", "domains": many, "ok": []int{1}}))
	require.ElementsMatch(t, []any{"error", "domains"}, out["truncated"])
	require.LessOrEqual(t, len(encode(out["error"])), FieldMost)
	require.True(t, strings.HasSuffix(out["error"].(string), "…"))
	require.LessOrEqual(t, len(encode(out["domains"])), FieldMost)
	require.Greater(t, len(encode(out["domains"])), FieldMost/2)
	require.Equal(t, "x", out["id"])

	out = read(encode(map[string]any{"rows": []any{map[string]any{"domains": many}, map[string]any{"id": 2}}}))
	require.Equal(t, []any{"domains"}, out["rows"].([]any)[0].(map[string]any)["truncated"])
	require.NotContains(t, out["rows"].([]any)[1], "truncated")

	out = read(encode(map[string]any{"after": json.RawMessage(encode(members))}))
	require.LessOrEqual(t, len(out["after"].(map[string]any)), mostMembers+1)

	require.Less(t, len(BoundJSON(`{"a":`+deep+`}`)), FieldMost)
	read(`{"a":` + deep + `}`)

	out = read(encode(map[string]any{"payload": long}))
	require.Equal(t, long, out["payload"], "what was asked for whole")
	require.NotContains(t, out, "truncated")
	out = read(encode(map[string]any{"row": map[string]any{"payload": long}}))
	require.Contains(t, out["row"], "truncated")
}

func FuzzBoundJSON(f *testing.F) {
	for _, s := range []string{`{"a":["x",1,null]}`, `[[[]]]`, `{"a":"\\\"","b":{"c":[{}]}}`, `"\u00e9"`, `{}`, `[]`, `1e5`} {
		f.Add(s, 0)
	}
	f.Fuzz(func(t *testing.T, s string, _ int) {
		var v any
		if json.Unmarshal([]byte(s), &v) != nil {
			return
		}
		var b bytes.Buffer
		require.NoError(t, json.Compact(&b, []byte(s)))
		text := `{"pad":"` + strings.Repeat("p", FieldMost) + `","v":[{"x":` + b.String() + `}]}`
		require.True(t, json.Valid([]byte(BoundJSON(text))), "%.200s", s)
	})
}
