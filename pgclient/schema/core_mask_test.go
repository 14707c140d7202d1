// Payloads: what a viewer may see of them, and that no other function or view shows more than that.

package schema_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

func TestMask(t *testing.T) {
	c := newCore(t)
	const s = "S3cr3tV4lue" // must never appear in an answer
	for _, payload := range []string{
		`{"password": "` + s + `"}`, `{"a": {"b": [{"Api-Key": "` + s + `"}]}}`, `{"PASSWD": "` + s + `"}`, `{"clientSecret": {"x": "` + s + `"}}`,
		`{"tokens": ["` + s + `"]}`, `{"Authorization": "Bearer ` + s + `"}`, `{"x_access_key_id": "` + s + `"}`, `{"card": 12345, "pin": "` + s + `"}`,
		`{"body": "{\"user\": {\"password\": \"` + s + `\"}}"}`, `{"body": "[{\"token\": \"` + s + `\"}]"}`,
		`{"body": "\"{\\\"password\\\": \\\"` + s + `\\\"}\""}`, `{"cut": "{\"password\": \"` + s + `"}`, `{"cut": "{\"a\": 1, \"token\":\"` + s + `\", \"b"}`,
		`{"esc": "x {\\\"password\\\": \\\"` + s + `\\\"}"}`,
		`{"url": "https://ann:` + s + `@example.org/x"}`, `{"url": "https://` + s + `@example.org/x"}`, `{"url": "https://h/?a=1&access_token=` + s + `&b=2"}`,
		`{"url": "https://h/?access%5Ftoken=` + s + `"}`, `{"url": "https://h/#id_token=` + s + `"}`, `{"dsn": "host=h password=` + s + ` user=u"}`,
		`{"dsn": "host=h password='` + s + ` x' user=u"}`, `{"text": "use API_KEY: ` + s + `, please"}`, `{"text": "Authorization: Basic ` + s + `"}`,
		`{"h": ["Cookie: sid=` + s + `"]}`, `{"h": "X-Signature=` + s + `"}`, `["secret=` + s + `"]`, `"token: ` + s + `"`,
		`{"j": "eyJhbGciOiJIUzI1NiJ9.` + s + `.x"}`, `{"k": "-----BEGIN RSA PRIVATE KEY-----\n` + s + `\n-----END RSA PRIVATE KEY-----"}`,
		strings.Repeat(`{"a":`, 70) + `{"token":"` + s + `"}` + strings.Repeat("}", 70),
	} {
		got := get[string](c, "SELECT public.fn_mask_json($1::jsonb)::text", payload)
		require.NotContains(t, got, s, payload)
	}
	for payload, want := range map[string]string{
		`{"n": 12345678901234567890.123456789, "m": 1e2, "z": 0.10}`: `{"m": 100, "n": 12345678901234567890.123456789, "z": 0.10}`,
		`{"body": "{\"n\": 12345678901234567890.10}"}`:               `{"body": "{\"n\": 12345678901234567890.10}"}`,
		`[null, true, [], {}, ""]`:                                   `[null, true, [], {}, ""]`,
		`{"password": null, "note": "{not json"}`:                    `{"note": "{not json", "password": null}`,
		`{"url": "https://example.org/a?b=c&d=e"}`:                   `{"url": "https://example.org/a?b=c&d=e"}`,
		`"plain text, with: colons = and equals"`:                    `"plain text, with: colons = and equals"`,
		`{"url": "https://ann:x@h/?token=abc&keep=1"}`:               `{"url": "https://ann:•••@h/?token=•••&keep=1"}`,
		`{"secret": 5, "ok": {"token": [1]}}`:                        `{"ok": {"token": "•••"}, "secret": "•••"}`,
	} {
		require.Equal(t, want, get[string](c, "SELECT public.fn_mask_json($1::jsonb)::text", payload))
	}
	require.Nil(t, get[*string](c, "SELECT public.fn_mask_json(NULL)::text"))
}

// corpus returns the lines of a file of testdata. Private keys in the file have a ¦ inside, so that
// scanners for leaked keys do not report the file; corpus removes it.
func corpus(t *testing.T, file string) []string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(string(raw), "¦", "")), "\n")
}

// Every form of a secret in the corpus is masked: alone, inside another payload, as text, as JSON
// in a string, and in JSON that was cut. Values that are no secret are not masked.
func TestMaskCorpus(t *testing.T) {
	c := newCore(t)
	secret := regexp.MustCompile(`(?i)S3cr3tV4lue|4111111111111111|UzNjcjN0VjRsdWU`)
	hidden, plain := corpus(t, "mask_hidden.jsonl"), corpus(t, "mask_plain.jsonl")
	require.Greater(t, len(hidden), 100)
	for _, payload := range hidden {
		for _, sql := range []string{
			"public.fn_mask_json($1::jsonb)", "public.fn_mask_json(jsonb_build_object('n', 1, 'deep', jsonb_build_array($1::jsonb)))",
			"public.fn_mask_json(jsonb_build_object('body', ($1::jsonb)::text))", "public.fn_mask_json(jsonb_build_object('b', jsonb_build_object('b', ($1::jsonb)::text)::text))",
			"public.fn_mask_text(($1::jsonb)::text)", "public.fn_mask_text($1)", "public.fn_mask_json(jsonb_build_object('body', $1::text))", // with its escapes as they were written
		} {
			got := get[string](c, "SELECT ("+sql+")::text", payload)
			require.NotRegexp(t, secret, got, "%s of %s", sql, payload)
		}
	}
	for _, payload := range plain {
		require.Equal(t, get[string](c, "SELECT ($1::jsonb)::text", payload), get[string](c, "SELECT public.fn_mask_json($1::jsonb)::text", payload))
	}
	all := get[string](c, "SELECT public.fn_mask_json($1::jsonb)::text", "["+strings.Join(append(hidden, plain...), ",")+"]")
	require.NotRegexp(t, secret, all)
	require.Contains(t, all, `"author": "Jane"`)
}

// Masking a large, deeply nested or dense payload ends in time and shows no secret.
func TestMaskIsBounded(t *testing.T) {
	c := newCore(t)
	conn := c.db.Conn(t, "")
	_, err := conn.Exec(t.Context(), "SET statement_timeout = 0") // on a slow machine one takes longer than a statement may
	require.NoError(t, err)
	masked := func(json string, args ...any) (text string) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT public.fn_mask_json("+json+")::text", args...).Scan(&text), json)
		return text
	}
	rows := `(SELECT jsonb_agg(jsonb_build_object('id', i, 'customer', 'Name ' || i, 'shipping', 'x', 'mail', i || '@example.org', 'password', 'S3cr3t'))
		FROM generate_series(1, 10000) i)`
	require.Greater(t, get[int](c, "SELECT length(("+rows+")::text)"), 1_000_000)
	started := time.Now()
	require.NotContains(t, masked(rows), "S3cr3t")
	t.Logf("1 MB with 10,000 secrets: %s", time.Since(started))
	for _, sql := range []string{
		"repeat('password=S3cr3t; ', 60000)", "repeat('4242 4111 ', 9000) || 'password=S3cr3t'", "repeat('DE12 GB34 ', 9000) || 'password=S3cr3t'", "repeat('4 3 5 2 ', 12000) || 'password=S3cr3t'", "repeat('4242' || chr(10), 18000) || 'password=S3cr3t'", "repeat('\"4242\", ', 12000) || 'password=S3cr3t'", "repeat('password a1!', 8000) || ' password=S3cr3t'", `'{"a": "' || repeat('password\": \"S3cr3t\", ', 50000)`, "repeat('%25', 100000) || 'password=S3cr3t'",
	} {
		require.NotContains(t, masked("to_jsonb("+sql+")"), "S3cr3t", sql)
	}
	lists := `(SELECT jsonb_agg(jsonb_build_array((1000 + i % 9000)::text, (1000 + i * 7 % 9000)::text, (1000 + i * 11 % 9000)::text, (1000 + i * 13 % 9000)::text)) || '[{"password": "S3cr3t"}]'
		FROM generate_series(1, 30000) i)`
	require.Greater(t, get[int](c, "SELECT length(("+lists+")::text)"), 900_000)
	require.NotContains(t, masked(lists), "S3cr3t", "lists of numbers as text")
	deep := strings.Repeat(`[`, 3000) + `{"password": "S3cr3t"}` + strings.Repeat(`]`, 3000)
	require.NotContains(t, masked("$1::jsonb", deep), "S3cr3t")
}

// maskedAll returns the payloads as every function masks them. It masks some of them per statement: all
// together take longer than a statement may on a slow machine.
func maskedAll(t *testing.T, session querier, payloads []string) (out []string) {
	t.Helper()
	for some := range slices.Chunk(payloads, 50) {
		rows, err := session.Query(t.Context(), "SELECT public.fn_mask_text(x) || public.fn_mask_json(x::jsonb)::text || public.fn_mask_url(x) FROM unnest($1::text[]) WITH ORDINALITY u (x, n) ORDER BY n", some)
		require.NoError(t, err)
		masked, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		out = append(out, masked...)
	}
	return out
}

// someOfCorpus returns every fourth payload of the corpus, in full every one, for the tests that compare two sessions or
// databases. TestMaskCorpus masks all.
func someOfCorpus(t *testing.T) (some []string) {
	t.Helper()
	for i, payload := range append(corpus(t, "mask_hidden.jsonl"), corpus(t, "mask_plain.jsonl")...) {
		if i%4 == 0 || os.Getenv("QTOP_TEST_FULL") != "" {
			some = append(some, payload)
		}
	}
	return some
}

// Masking does not depend on the settings of the session.
func TestMaskInAnySession(t *testing.T) {
	c := newCore(t)
	payloads := someOfCorpus(t)
	mask := func(setting string) []string {
		t.Helper()
		c.root.Reset() // a session keeps the functions as it read them first
		conn, err := c.root.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		_, err = conn.Exec(t.Context(), "SET standard_conforming_strings = "+setting)
		require.NoError(t, err)
		return maskedAll(t, conn, payloads)
	}
	require.Equal(t, mask("on"), mask("off"))
}

// Masking does not depend on the language of the database: in Turkish, the small letter of I is not i.
func TestMaskInAnyLanguage(t *testing.T) {
	c := newCore(t)
	db := pgtest.Localized(t, "tr")
	require.NoError(t, schema.Up(t.Context(), db.DSN(""), nil))
	payloads := append(someOfCorpus(t), `{"FIELD": "password", "VALUE": "S3cr3t"}`, `{"ID": "api_key", "DATA": "S3cr3t"}`, `"it60x0542811101000000123456"`, `"gi12abcdefghijklmnop"`, `"%7B%22PIN%22%3A1234%7D"`)
	turkish := db.Pool(t, "")
	var small string
	require.NoError(t, turkish.QueryRow(t.Context(), "SELECT lower('I')").Scan(&small))
	require.NotEqual(t, "i", small)
	require.Equal(t, maskedAll(t, c.root, payloads), maskedAll(t, turkish, payloads))
}

// A viewer sees payloads masked, and cannot read them in any other way.
func TestViewerSeesNoPayload(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	h.subscribe("order")
	h.exec("UPDATE public.subscriptions SET max_attempts = 1")
	h.exec(`INSERT INTO public.events (event_type, payload) VALUES ('order', '{"n": 1, "card_number": "hidden-4111"}')`)
	h.step()
	r := result(h.claim(1)[0], "HTTP_500")
	r["excerpt"] = "hidden-excerpt"
	h.report(r)
	h.step()
	h.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	h.exec(`SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL, '{"n": 1, "api_key": "hidden-key"}')`)

	viewer := c.as("queue_viewer")
	for kind, table := range map[string]string{"event": "events", "dead_letter": "dead_letters", "event_outbox": "event_outbox"} {
		id := get[string](c, "SELECT id::text FROM public."+table)
		var masked string
		require.NoError(t, viewer.QueryRow(context.Background(), "SELECT public.fn_payload_masked($1, $2)::text", kind, id).Scan(&masked))
		require.Contains(t, masked, `"n": 1`)
		require.NotContains(t, masked, "hidden")
	}
	for _, columns := range []string{"payload FROM public.events", "* FROM public.events", "e FROM public.events e", "to_jsonb(e) FROM public.events e", "payload_snapshot FROM public.dead_letters",
		"* FROM public.dead_letters", "safe_payload FROM public.event_outbox", "* FROM public.event_outbox", "row_to_json(e) FROM public.event_outbox e",
		"safe_payload FROM public.event_outbox_default", "response_excerpt FROM public.webhook_delivery_jobs", "event_snapshot FROM public.iu_route_dead_letter",
		"body FROM public.queue_snapshot", "secret_ref FROM public.subscriptions"} {
		_, err := viewer.Exec(context.Background(), "SELECT "+columns)
		if strings.HasPrefix(columns, "secret_ref") && err == nil {
			continue // the text names a kind of secret, but contains none
		}
		refused(t, "42501", err, columns)
	}
	for _, sql := range []string{"COPY public.events TO STDOUT", "COPY public.dead_letters (payload_snapshot) TO STDOUT", "SELECT public.fn_mask_json('{}')",
		"CREATE TEMP TABLE x AS TABLE public.events", "CREATE TABLE public.mine ()"} {
		fails(t, viewer, "42501", sql)
	}
	// The views, the snapshot and the statistics do not contain a payload either.
	var all strings.Builder
	rows, err := viewer.Query(context.Background(), "SELECT c.relname::text FROM pg_class c WHERE relkind = 'v' AND "+publicRelations)
	require.NoError(t, err)
	var views []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		views = append(views, name)
	}
	require.NoError(t, rows.Err())
	for _, name := range append(views, "queue_operator_action", "queue_heartbeat", "queue_tick_worker") {
		if name == "v_job" {
			continue // holds payloads, which its viewers may not read
		}
		var text *string
		require.NoError(t, viewer.QueryRow(context.Background(), "SELECT string_agg(v::text, ' ') FROM public."+name+" v").Scan(&text), name)
		if text != nil {
			all.WriteString(*text)
		}
	}
	var snapshot string
	require.NoError(t, viewer.QueryRow(context.Background(), "SELECT public.fn_queue_snapshot('0')::text").Scan(&snapshot))
	require.NotContains(t, all.String()+snapshot, "hidden")

	for _, bad := range []string{"'job', '1'", "NULL, '1'", "'event', 'x'", "'event', '99999999999999999999'", "'event_outbox', '1'"} {
		fails(t, viewer, "22023", "SELECT public.fn_payload_masked("+bad+")")
	}
	require.Nil(t, get[*string](c, "SELECT public.fn_payload_masked('event', '999')::text"))
	fails(t, c.as("dot_executor", "event_ingest_writer", "webhook_worker"), "42501", "SELECT public.fn_payload_masked('event', '1')")
}

// A number in a field that is named like a card, a code or a password is masked; a number in a
// field that counts such things is not.
func TestMaskNumbers(t *testing.T) {
	c := newCore(t)
	for name, hidden := range map[string]bool{
		"card_num": true, "cardNum": true, "card_input": true, "cvv_num": true, "ssn_num": true, "pin_input": true, "otp_input": true, "password_input": true,
		"max_pin": true, "cardNumber": true, "card_count": false, "max_tokens": false, "pin_length": false, "password_age": false, "token_count": false, "amount": false,
	} {
		got := get[string](c, "SELECT public.fn_mask_json(jsonb_build_object($1::text, 4111111111111112::bigint))::text", name) // no card: its last digit is wrong
		require.Equal(t, hidden, !strings.Contains(got, "4111111111111112"), "%s: %s", name, got)
	}
}

// Card numbers and IBANs are recognised by their checksums and masked in any context;
// other numbers are kept.
func TestMaskAccounts(t *testing.T) {
	c := newCore(t)
	mask := func(payload string) string {
		return get[string](c, "SELECT public.fn_mask_json($1::jsonb)::text", payload)
	}
	for n, number := range []string{
		"4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00", "DE89370400440532013000", "4111111111111111", "4111-1111-1111-1111", "4222222222222", "4000000000000000006", "5555555555554444", "2223003122003222",
		"378282246310005", "3782 822463 10005", "6011111111111117", "30569309025904", "39000000000005", "30950000000000", "3530111333300000", "2200000000000004", "2204000000000000", "6304000000000000",
		"de89370400440532013000", "GB29 NWBK 6016 1331 9268 19", "GB29NWBK60161331926819",
		"FR1420041010050500013M02606", "FR14 2004 1010 0505 0001 3M02 606", "NO9386011117947", "NO93 8601 1117 947", "MT84MALT011000012345MTLCAST001S",
		"NL91 ABNA0417164300", "NL91 ABNA 0417 1643 00", "IT60 X 05428 11101 000000123456", "de89 3704 0044 0532013000", "FR14-20041-01005-0500013M026-06",
		"4111.1111.1111.1111", "4111_1111_1111_1111", "4111/1111/1111/1111", "3782.822463.10005", "DE89.3704.0044.0532.0130.00", "GB29/NWBK/6016/1331/9268/19",
		"4111–1111–1111–1111", "4111 - 1111 - 1111 - 1111", "4111  1111  1111  1111", "4111+1111+1111+1111", "4111&nbsp;1111&nbsp;1111&nbsp;1111", "4111&#160;1111&#xA0;1111&#32;1111", "4111%C2%A01111%c2%a01111%C2%A01111",
		`4111\t1111\t1111\t1111`, `4111\n1111\n1111\n1111`, `4111\u20281111\u20111111\u22121111`, "٤١١١ ١١١١ ١١١١ ١١١١", "४१११११११११११११११", "&#52;111111111111111",
		"DE89–3704–0044–0532–0130–00", "DE89+3704+0044+0532+0130+00", "IBANDE89370400440532013000", "IBANDE89 3704 0044 0532 0130 00", "AT61 1904 3002 3457 3201",
	} {
		forms := []string{
			`{"order": {"note": "%s"}}`, `["a", "paid with %s yesterday"]`, `"%s"`, `{"%s": {"n": 1}}`, `{"text": "x=%s;y"}`, `{"text": "{\"b\": [\"%s\"]}"}`, `{"csv": "1,%s,2"}`,
			`{"u": "https://h/pay/%s/done"}`, `{"text": "%s then some more words"}`,
		}
		if n > 2 { // the other numbers only in the last form, within a sentence
			forms = forms[len(forms)-1:]
		}
		for _, form := range forms {
			got := mask(strings.ReplaceAll(form, "%s", number))
			require.NotContains(t, got, number, form)
			require.NotContains(t, got, number[len(number)-5:], form)
		}
	}
	for payload, want := range map[string]string{ // split over the strings of a list
		`["4111", "1111", "1111", "1111"]`: `["•••"]`, `{"a": ["x", "4111", "1111", "1111", "1111", "2027"]}`: `{"a": ["x", "•••", "2027"]}`, `["3782", "822463", "10005"]`: `["•••"]`,
		`[["1111", "4111"], ["4111", "1111", "1111", "1111"]]`: `[["1111", "4111"], ["•••"]]`, `["DE89", "3704", "0044", "0532", "0130", "00"]`: `["•••"]`,
		`["4111", {"x": ["1"]}, null, "4111", "1111", "1111", "1111", {"password": "S3cr3t"}, 7]`: `["4111", {"x": ["1"]}, null, "•••", {"password": "•••"}, 7]`,
		`[{"a": "'4111','1111','1111", "1111": 1}]`:                                               `[{"a": "'4111','1111','1111", "1111": 1}]`,
		`{"cut": "[\"4111\", \"1111\",\"1111\", \"1111\""}`:                                       `{"cut": "[\"•••\""}`, `"card ['4111', '1111', '1111', '1111'] declined"`: `"card ['•••'] declined"`,
	} {
		require.Equal(t, want, mask(payload), payload)
	}
	for _, number := range []string{"4111111111111111", "5555555555554444", "378282246310005"} {
		for _, form := range []string{`{"amount": %s}`, `[1, %s]`, `%s`, `{"a": [{"b": %s}]}`, `{"amount": %s.0}`, `{"amount": -%s}`, `[-%s, 1]`, `-%s.00`} {
			require.NotContains(t, mask(strings.ReplaceAll(form, "%s", number)), number, form)
		}
	}
	for text, want := range map[string]string{ // beside other numbers and words, and in lists
		"card 4242424242424242 12/27": "card ••• 12/27", "order 25 4242424242424242 declined": "order 25 ••• declined", "2026-11-26 4242424242424242": "2026-11-26 •••",
		"4242 4242 4242 4242 123": "••• 123", "at 17 4242-4242-4242-4242-9": "at 17 •••-9", "4111111111111111 5555555555554444": "••• •••",
		"4111111111111111,5555555555554444;378282246310005": "•••,•••;•••", "4111111111111111, 25 4111111111111111 4242424242424242": "•••, 25 ••• •••",
		"DE89370400440532013000,GB29NWBK60161331926819": "•••,•••", "AB12 DE89 3704 0044 0532 0130 00": "AB12 •••", "AB12 4242 4242 4242 4242 ok": "AB12 ••• ok",
		"AT61 1904 3002 3457 3201 AT48 3200 0000 1234 5864": "••• •••", "DE89 3704 0044 0532 0130 00 and GB29 NWBK 6016 1331 9268 19": "••• and •••",
		"EU12 from DE89370400440532013000": "EU12 from •••", "DE89 3704 0044 0532 0130 00 by GB29NWBK60161331926819 and on": "••• by ••• and on",
		"1.4242424242424242 4111111111111111": "1.4242424242424242 •••", "Nr.4242424242424242": "Nr.•••", "card no.4111 1111 1111 1111 ok": "card no.••• ok",
		"AT61–1904–3002–3457–3201 then 4111/1111/1111/1111": "••• then •••",
		"2026: 4111.1111.1111.1111":                         "2026: •••", "order 3021 4111/1111/1111/1111": "order 3021 •••", "exp 12/2026 4111_1111_1111_1111": "exp 12/2026 •••",
		"id42 from card that user gave 4111.1111.1111.1111": "id42 from card that user gave •••", "2026 2027 2028 3782.822463.10005": "2026 2027 2028 •••",
		"id42 from card that user gave now also DE89.3704.0044.0532.0130.00": "id42 from card that user gave now also •••", "2024/2025/2026: 4111+1111+1111+1111 (2027)": "2024/2025/2026: ••• (2027)",
		"4000/0000/0000/0000/006": "•••", "4111/1111/1111/1111/123 ok": "••• ok", "2026: 4000+0000+0000+0000+006.": "2026: •••.",
		`{\"cut\": \"Konto:\\nDE89370400440532013000`: `{\"cut\": \"Konto:\n•••`, // a line end as an escape
		".4242424242424242":                           ".•••", "v2.4242424242424242": "v2.4242424242424242",
	} {
		require.Equal(t, `"`+want+`"`, mask(`"`+text+`"`), text)
	}
	for _, payload := range []string{
		`{"id": 4111111111111112}`, `{"at": 1763900000000}`, `{"at": 1763900000000000}`, `{"id": "1234567890123456789"}`, `{"phone": "+49 30 1234567890"}`,
		`{"id": "de89370400440532013001"}`, `{"id": "4f0c6b2e-1111-4222-8333-444455556666"}`, `{"sha": "da39a3ee5e6b4b0d3255bfef95601890afd80709"}`,
		`{"n": 0.4111111111111111}`, `{"row": "21 34 55 62 31 47 50 66 21 34 55 62 31 47 50 66"}`, `{"at": "2026-11-26 1763900000000"}`, `{"v": "1.4111111111111111"}`, `{"id": 41111111111111111111111}`, `{"sku": "AB12-3456-7890-1234"}`, `{"n": 4111111111111111.5}`, `{"n": [-4111111111111112.0]}`,
		`["4111", "1111", "1111", "1112"]`, `["4111", "1111"]`, `[4111, 1111, 1111, 1111]`, `["2024", "2025", "2026", "2027"]`, `["DE89", "3704", "0044", "0532", "0130", "01"]`,
		`{"id": "4111.1111.1111.1112"}`, `{"path": "2026/1126/1531/4242"}`, `{"id": "DE89.3704.0044.0532.0130.01"}`,
	} {
		require.Equal(t, payload, mask(payload))
	}
}

// A long column of numbers is not masked as a whole; a card number in it is.
func TestMaskColumns(t *testing.T) {
	c := newCore(t)
	column := strings.Repeat("2026\n", 5000)
	require.Equal(t, column, get[string](c, "SELECT public.fn_mask_said($1)", column))
	require.Equal(t, column+"•••\n"+column, get[string](c, "SELECT public.fn_mask_said($1)", column+"4111\n1111\n1111\n1111\n"+column))
	list := `["` + strings.Repeat(`4111", "`, 10) + strings.Repeat(`1111", "`, 10) + `1111"]`
	require.Equal(t, list, get[string](c, "SELECT public.fn_mask_json($1::jsonb)::text", list), "a list of numbers")
	codes := strings.Repeat("AT12\n", 300)
	require.Equal(t, codes+"•••\n", get[string](c, "SELECT public.fn_mask_said($1)", codes+"DE89\n3704\n0044\n0532\n0130\n00\n"))
}

// A word after password without a sign between is masked where it can only be a secret.
func TestMaskBarePasswords(t *testing.T) {
	c := newCore(t)
	for _, secret := range []string{"hunter2x", "P@ssw0rd", "S3cr3tV4lue", "a1b2c3d4", "x#9Qw!t7"} {
		for _, form := range []string{"credentials: password %s", "credentials: password %s: rejected", "auth: pwd %s", "--auth password %s", "login failed for password %s", "password %s: rejected", "the password is %s.", "Passwd  %s, again", `pwd %s`, "PASSWORD %s"} {
			require.NotContains(t, get[string](c, "SELECT public.fn_mask_said($1)", strings.ReplaceAll(form, "%s", secret)), secret, form)
		}
	}
	require.NotContains(t, get[string](c, "SELECT public.fn_mask_said('wrong password token2fa: 8842913')"), "8842913", "a name may look like a password")
	for _, text := range []string{
		"password required", "password authentication failed for user \"app\"", "password is wrong", "password was changed 3 times", "password expired2", "password SCRAM-SHA-256 failed",
		"password sha256 unsupported", "password base64url", "password utf8mb4", "password 12 characters", "password 8+chars needed", "password min_length=8", "password v1.2.3x4", "password user1.example.org",
		"password must have 8 characters, 2 digits!", "password for user42", "passwords a1b2c3d4", "password policy2026", "password md5hash", "password reset-2fa", "no password file1/x2y",
	} {
		require.Equal(t, text, get[string](c, "SELECT public.fn_mask_said($1)", text))
	}
}

// In what programs say, tokens in the paths of URLs are masked; words, numbers, dates and UUIDs are
// not.
func TestMaskTokensInPaths(t *testing.T) {
	c := newCore(t)
	const token, mixed = "abcdefghijklmnopqrstuvwx", "aB3-dEfGhIjKlMn_oPqRsTuVwXyZ0123456789abcd"
	for text, want := range map[string]string{
		`Post "https://chat.example/hooks/T0123ABCD/B0123/` + token + `": dial tcp 192.0.2.1:443: connect: connection refused`: `Post "https://chat.example/hooks/T0123ABCD/B0123/•••": dial tcp 192.0.2.1:443: connect: connection refused`,
		"POST /hooks/T0123ABCD/B0123/" + token + " returned 404":                                                               "POST /hooks/T0123ABCD/B0123/••• returned 404",
		"https://h.example/api/webhooks/123456789012345678/" + mixed + ".":                                                     "https://h.example/api/webhooks/123456789012345678/•••.",
		"see https://h/a/" + token + "/b?x=1, https://h/c/" + mixed + ": no":                                                   "see https://h/a/•••/b?x=1, https://h/c/•••: no",
		"https://h/in/" + token + ", https://h/in/" + token + "9Zq: no":                                                        "https://h/in/•••, https://h/in/•••: no",
		`Post "https://fn.example/api/job?code=aB3dEfGhIjKlMnOpQrStUvWx1234": context deadline exceeded`:                       `Post "https://fn.example/api/job?code=•••": context deadline exceeded`,
		"GET /api/job?n=1&c=" + token + "&at=2026-11-27 failed":                                                                "GET /api/job?n=1&c=•••&at=2026-11-27 failed",
		`{"error": "https:\/\/h\/in\/` + token + `"}`:                                                                          `{"error": "https:\/\/h\/in\/•••"}`,
	} {
		require.Equal(t, want, get[string](c, "SELECT public.fn_mask_said($1)", text), text)
	}
	for _, text := range []string{
		"https://h/orders/0190a1b2-1111-4222-8333-0123456789ab/lines", "https://h/how-to-configure-the-notification-of-orders", "https://h/api/v2/webhooks/orderCreatedNotification",
		"https://h/2026/11/27/report_2026-11-27_final.pdf", "https://h/x/123456789012345678901234", "open /usr/lib/postgresql/" + token + ": no such file", "https://h/a?q=how-to-configure-the-notification-of-orders&id=0190a1b2-1111-4222-8333-0123456789ab&at=20261127153100123456",
		"GET /a?next=https%3A%2F%2Fexample.org%2Fordersandinvoices%2Fcreated&sort=orderCreatedNotification: 404", "what is in /a? x=" + token, "https://h.example:8443/internationalization/a",
	} {
		require.Equal(t, text, get[string](c, "SELECT public.fn_mask_said($1)", text))
	}
}

// What programs say is recorded whatever it is: if it cannot be searched for secrets, that is recorded.
func TestMaskSaidNeverRaises(t *testing.T) {
	c := newCore(t)
	c.exec(`CREATE OR REPLACE FUNCTION public.fn_mask_text(p_text text, p_depth int DEFAULT 0) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END'`)
	require.Equal(t, "[masked: it could not be searched for secrets]", get[string](c, "SELECT public.fn_mask_said('x')"))
}

// JSON that is encoded in base64 or hex is masked too, however deep the encodings are nested.
func TestMaskCodes(t *testing.T) {
	c := newCore(t)
	const s = "S3cr3tV4lue"
	mask := func(payload any) string {
		raw, err := json.Marshal(payload)
		require.NoError(t, err)
		return get[string](c, "SELECT public.fn_mask_json($1::jsonb)::text", string(raw))
	}
	coders := map[string]func(string) string{
		"base64": func(x string) string { return base64.StdEncoding.EncodeToString([]byte(x)) },
		"url":    func(x string) string { return base64.RawURLEncoding.EncodeToString([]byte(x)) },
		"hex":    func(x string) string { return hex.EncodeToString([]byte(x)) },
		"HEX":    func(x string) string { return strings.ToUpper(hex.EncodeToString([]byte(x))) },
	}
	utf := func(order binary.AppendByteOrder, mark string) func(string) string {
		return func(x string) string {
			var raw []byte
			for _, unit := range utf16.Encode([]rune(mark + x)) {
				raw = order.AppendUint16(raw, unit)
			}
			return string(raw)
		}
	}
	inner := []string{
		`{"password":"` + s + `"}`, `{ "user": "ann", "password": "` + s + `" }`, "{\n  \"n\": 1,\n  \"token\": \"" + s + "\"\n}", `[{"api_key":"` + s + `"}]`, `["token=` + s + `"]`,
		`{"card":"4111111111111111"}`, `{"note":"4111 1111 1111 1111"}`, `{"ü":"日本","secret":"` + s + `"}`, `{"password":"` + s + `","cut`, `[[1, {"token": "` + s + `"}]]`,
		`{"cvv":123}`, `{"pin":1}`, `["otp=1"]`, `{"name":"Mü","password":"` + s + `","cut":"` + "ü"[:1],
	}
	for name, code := range coders {
		for _, plain := range inner {
			x := code(plain)
			forms := []any{x, map[string]any{"body": x}}
			if plain == inner[0] {
				forms = append(forms, []string{"a", x}, map[string]any{x: 1}, "data:application/json;base64,"+x, "body="+x+"&n=1", `\x`+x, "https://h/cb/"+x, "https://h/cb/"+x+"/status?n=1", "body+"+x, "ref "+x+"-1", "ref "+x+"_2026", map[string]any{"text": `{"raw":"` + x + `"}`})
			}
			for _, payload := range forms {
				require.NotContains(t, mask(payload), x[:len(x)/2], "%s of %s", name, plain)
			}
		}
		for encoding, other := range map[string]func(string) string{
			"UTF-8 with a mark": func(x string) string { return "\ufeff" + x },
			"UTF-16LE":          utf(binary.LittleEndian, ""), "UTF-16BE": utf(binary.BigEndian, ""),
			"UTF-16LE with a mark": utf(binary.LittleEndian, "\ufeff"), "UTF-16BE with a mark": utf(binary.BigEndian, "\ufeff"),
		} {
			for _, plain := range inner[:len(inner)-1] {
				x := code(other(plain))
				require.NotContains(t, mask(map[string]any{"body": x}), x[:len(x)/2], "%s of %s of %s", name, encoding, plain)
			}
			x := code(other(`{"a":1,"name":"something plain"}`))
			require.Contains(t, mask(map[string]any{"body": x}), x, "%s of %s", name, encoding)
		}
		for outer, twice := range coders {
			for _, plain := range []string{inner[0], inner[3]} {
				for _, x := range []string{twice(code(plain)), twice(`{"body":"` + code(plain) + `"}`)} {
					require.NotContains(t, mask(map[string]any{"body": x}), x[:len(x)/2], "%s of %s of %s", outer, name, plain)
				}
				for last, again := range coders {
					x := again(twice(code(plain)))
					require.NotContains(t, mask(map[string]any{"body": x}), x[:len(x)/2], "%s of %s of %s of %s", last, outer, name, plain)
				}
			}
		}
		for _, plain := range []string{`{"a":1,"name":"something plain"}`, `["a","b","something plain"]`, `{"n": [1, 2, 3], "at": "2026-01-01"}`} {
			for _, x := range []string{code(plain), code(code(plain)), code(code(code(plain)))} {
				require.Contains(t, mask(map[string]any{"body": x}), x, "%s of %s", name, plain)
			}
		}
	}
	for name, code := range coders {
		for _, plain := range []string{
			"\n" + inner[0], "\r\n\t" + inner[0], " \n  " + inner[0], "\t" + inner[3], "  " + inner[3], `"{\"password\":\"` + s + `\"}"`, `"[{\"password\":\"` + s + `\"}]"`,
			`[null,{"password":"` + s + `"}]`, `[false, {"password":"` + s + `"}]`, `[true,{"password":"` + s + `"}]`, "\n\n[1," + inner[0] + "]",
		} {
			x := code(plain)
			require.NotContains(t, mask(map[string]any{"body": x}), x[:len(x)/2], "%s of %s", name, plain)
		}
		for _, plain := range []string{"\n {\"a\":1,\"name\":\"something plain\"}", `[null,{"name":"something plain"}]`} {
			require.Contains(t, mask(map[string]any{"body": code(plain)}), code(plain), "%s of %s", name, plain)
		}
	}
	for _, mark := range []string{"/", "+"} {
		x := coders["base64"](coders["url"](inner[0]))
		require.NotContains(t, mask("https://h/cb"+mark+x), x[:len(x)/2], "base64 of base64 after %s", mark)
	}
	for _, mark := range []string{" ", ":", "-", "  ", ",0x", ", 0x", " 0x", ", "} { // between the bytes
		bytes := regexp.MustCompile("..").FindAllString(coders["hex"](inner[0]), -1)
		require.NotContains(t, mask("dump: 0x"+strings.Join(bytes, mark)), strings.Join(bytes[2:9], mark), "hex with %q", mark)
	}
	short := coders["base64"](`{"password":"` + s + `","n":12}`) // no = at its end
	long := short + coders["base64"](`,{"password":"`+s+`"}`)
	require.NotContains(t, mask(short+" "+long+" "+short), long[len(short):], "a code that is the beginning of another")
	deep := inner[0]
	for range 7 {
		deep = coders["base64"](deep)
		require.NotContains(t, mask(map[string]any{"body": deep}), deep[:len(deep)/2])
	}
	lines := base64.StdEncoding.EncodeToString([]byte(`{"a":"` + strings.Repeat("x", 60) + `","password":"` + s + `"}`))
	for _, end := range []string{"\r\n", "\n    ", "\r\n\t", "  ", " ", "\n\n"} {
		require.NotContains(t, mask("mail:\r\n"+lines[:76]+end+lines[76:]+"\r\n"), lines[80:], "%q", end)
	}
	for _, key := range []string{"sk_" + "live_abcdefghijkl", "gh" + "p_abcdefghijklmnop", "https://ann:" + s + "@h/x", "token=" + s} {
		require.NotContains(t, mask(map[string]any{key: map[string]any{"n": 1}}), key, "a secret as a key")
	}
}

// Viewers see callback URLs only with the secrets of path and query masked.
func TestCallbackURLsAreMasked(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	for url, want := range map[string]string{
		"https://h.example/orders/created":                        "https://h.example/orders/created",
		"https://h.example:8443/api/v2/webhooks/orderCreated":     "https://h.example:8443/api/v2/webhooks/orderCreated",
		"https://h.example/hook/8f3a9c2e71b04d":                   "https://h.example/hook/•••",
		"https://h.example/api/webhooks/1234567890/aBcD-eFgH_1x2": "https://h.example/api/webhooks/•••/•••",
		"https://h.example/bot123:AAbb/send?x=1#y":                "https://h.example/•••/send?•••",
		"https://h.example/catch/tok%65n=abc":                     "https://h.example/catch/•••",
		"https://h.example/a;key=S3cr3t/b":                        "https://h.example/•••/b",
		"https://h.example/?token=S3cr3t":                         "https://h.example/?•••",
		"https://h.example":                                       "https://h.example",
	} {
		require.Equal(t, want, get[string](c, "SELECT public.fn_mask_url($1)", url), url)
	}
	h.exec("INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('order', 'https://h.example/hook/8f3a9c2e71b04d?k=S3cr3t', true, true)")
	for _, role := range []string{"queue_viewer", "workflow_admin"} {
		login := c.as(role)
		var url string
		require.NoError(t, login.QueryRow(t.Context(), "SELECT callback_url FROM public.v_webhook_endpoint").Scan(&url))
		require.Equal(t, "https://h.example/hook/•••?•••", url, role)
		fails(t, login, "42501", "SELECT callback_url FROM public.subscriptions")
		fails(t, login, "42501", "SELECT s FROM public.subscriptions s")
	}
	var audit string
	require.NoError(t, h.root.QueryRow(t.Context(), "SELECT string_agg(a::text, '') FROM public.queue_operator_action a").Scan(&audit))
	require.NotContains(t, audit, "8f3a9c2e71b04d")
	require.NotContains(t, audit, "S3cr3t")
}
