// Payloads: what a viewer may see of them, and that there is no other way in.

package schema_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMask(t *testing.T) {
	c := newCore(t)
	const s = "S3cr3tV4lue" // what must never come out
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

// corpus is the lines of a file of testdata; ¦ keeps what scans for keys off them.
func corpus(t *testing.T, file string) []string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(string(raw), "¦", "")), "\n")
}

// Every form of a secret in the corpus is masked, also within a payload of others,
// as a text, as JSON in a string and in JSON that was cut; what is none stays.
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

// What is large, deep or dense ends in time and gives nothing away.
func TestMaskIsBounded(t *testing.T) {
	c := newCore(t)
	rows := `(SELECT jsonb_agg(jsonb_build_object('id', i, 'customer', 'Name ' || i, 'shipping', 'x', 'mail', i || '@example.org', 'password', 'S3cr3t'))
		FROM generate_series(1, 10000) i)`
	require.Greater(t, get[int](c, "SELECT length(("+rows+")::text)"), 1_000_000)
	started := time.Now()
	require.NotContains(t, get[string](c, "SELECT public.fn_mask_json("+rows+")::text"), "S3cr3t")
	t.Logf("1 MB with 10,000 secrets: %s", time.Since(started))
	for _, sql := range []string{
		"repeat('password=S3cr3t; ', 60000)", `'{"a": "' || repeat('password\": \"S3cr3t\", ', 50000)`, "repeat('%25', 100000) || 'password=S3cr3t'",
	} {
		require.NotContains(t, get[string](c, "SELECT public.fn_mask_json(to_jsonb("+sql+"))::text"), "S3cr3t", sql)
	}
	deep := strings.Repeat(`[`, 3000) + `{"password": "S3cr3t"}` + strings.Repeat(`]`, 3000)
	require.NotContains(t, get[string](c, "SELECT public.fn_mask_json($1::jsonb)::text", deep), "S3cr3t")
}

// A viewer sees payloads through the mask and in no other way.
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
			continue // names a secret, holds none
		}
		refused(t, "42501", err, columns)
	}
	for _, sql := range []string{"COPY public.events TO STDOUT", "COPY public.dead_letters (payload_snapshot) TO STDOUT", "SELECT public.fn_mask_json('{}')",
		"CREATE TEMP TABLE x AS TABLE public.events", "CREATE TABLE public.mine ()"} {
		fails(t, viewer, "42501", sql)
	}
	// Nor do the views, the picture or the statistics hold any of it.
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

// A number under a name of a card, a code or a password is the secret itself; one that
// counts such things is not.
func TestMaskNumbers(t *testing.T) {
	c := newCore(t)
	for name, hidden := range map[string]bool{
		"card_num": true, "cardNum": true, "card_input": true, "cvv_num": true, "ssn_num": true, "pin_input": true, "otp_input": true, "password_input": true,
		"max_pin": true, "cardNumber": true, "card_count": false, "max_tokens": false, "pin_length": false, "password_age": false, "token_count": false, "amount": false,
	} {
		got := get[string](c, "SELECT public.fn_mask_json(jsonb_build_object($1::text, 4111111111111111::bigint))::text", name)
		require.Equal(t, hidden, !strings.Contains(got, "4111111111111111"), "%s: %s", name, got)
	}
}
