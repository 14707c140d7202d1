// The audit of webhook subscriptions, and which columns of events a producer may read.

package schema_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// Every statement that writes rows of subscriptions makes an audit row for each row, whichever
// login runs it, even in a session with session_replication_role = replica.
func TestWebhookSubscriptionsAreAudited(t *testing.T) {
	h := newHooks(t)
	admin := pgtest.Login(t, h.db, "subscription_admin")
	const owner = "queue_owner"
	other := pgtest.Login(t, h.db)
	h.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON public.subscriptions TO " + other) // no role of qtop has all these rights
	audited := func(by string) (got []string) {
		t.Helper()
		rows, err := h.root.Query(context.Background(), `SELECT concat_ws(' ', reason, target, db_role = $1, actor = $1, frozen_count, before ->> 'callback_url', after ->> 'callback_url',
			after ->> 'active', after ->> 'changed') FROM public.queue_operator_action WHERE action = 'webhook_subscription_write' ORDER BY id`, by)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var line string
			require.NoError(t, rows.Scan(&line))
			got = append(got, line)
		}
		require.NoError(t, rows.Err())
		return got
	}
	who := map[string]*pgxpool.Pool{admin: h.db.Pool(t, admin), owner: h.root, other: h.db.Pool(t, other), "": h.root}
	seen := len(audited(""))
	for login, pool := range who {
		name := login
		if name == "" || name == owner {
			name = one[string](h, "SELECT session_user")
		}
		mode := "origin"
		if login == "" {
			mode = "replica"
		}
		run := func(want int, sql string, args ...any) []string {
			t.Helper()
			tx := (&core{t: t, db: h.db}).begin(pool)
			if login == owner {
				_, err := tx.Exec(context.Background(), "SET LOCAL ROLE queue_owner")
				require.NoError(t, err)
			}
			if mode == "replica" {
				_, err := tx.Exec(context.Background(), "SET LOCAL session_replication_role = replica")
				require.NoError(t, err)
			}
			_, err := tx.Exec(context.Background(), sql, args...)
			require.NoError(t, err, "%s: %s", name, sql)
			require.NoError(t, tx.Commit(context.Background()))
			all := audited(name)
			require.Len(t, all, seen+want, "%s: %s", name, sql)
			got := all[seen:]
			seen = len(all)
			return got
		}
		var id int64
		mark := "t " + login
		user, shown := "u:pw-", "•••@"
		if login == admin || login == other { // refused to them
			user, shown = "", ""
		}
		held := func(which string) string { return queue.Choose(user == "", "", user+which+"@") }
		run(2, `INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ($1, 'https://`+held("one")+`a.example/hook?key=k-one#f', true, true), ($1, 'http://b', true, true)`, mark)
		id = one[int64](h, "SELECT min(id) FROM public.subscriptions WHERE event_type = $1", mark)
		turned := run(1, "UPDATE public.subscriptions SET callback_url = 'https://"+held("two")+"a.example/hook?key=k-two' WHERE id = $1", id)
		require.Equal(t, fmt.Sprintf(`UPDATE on the table webhook subscription %d t t 1 https://%[2]sa.example/hook?••• https://%[2]sa.example/hook?••• true ["callback_url"]`, id, shown),
			turned[0], "what is masked alike is named as changed")
		run(2, "UPDATE public.subscriptions SET active = false WHERE event_type = $1", mark)
		if login == owner || login == "" { // other logins cannot choose an id
			run(1, `INSERT INTO public.subscriptions (id, event_type, callback_url) OVERRIDING SYSTEM VALUE VALUES ($1, $2, 'https://evil.example')
				ON CONFLICT (id) DO UPDATE SET callback_url = excluded.callback_url`, id, mark)
		}
		run(2, `MERGE INTO public.subscriptions s USING (VALUES ($1)) v (t) ON s.event_type = v.t WHEN MATCHED THEN UPDATE SET active = true`, mark)
		if login != admin { // the admin has no right to delete
			h.exec("DELETE FROM public.webhook_endpoint_state WHERE subscription_id = ANY (SELECT id FROM public.subscriptions WHERE event_type = $1)", mark)
			h.exec("DELETE FROM public.webhook_rate_bucket WHERE subscription_id = ANY (SELECT id FROM public.subscriptions WHERE event_type = $1)", mark)
			run(2, "DELETE FROM public.subscriptions WHERE event_type = $1", mark)
		}
	}
	left := one[int](h, "SELECT count(*) FROM public.subscriptions")
	require.Positive(t, left)
	tx := (&core{t: t, db: h.db}).begin(h.root)
	for _, sql := range []string{"SET LOCAL session_replication_role = replica", "TRUNCATE public.subscriptions CASCADE"} {
		_, err := tx.Exec(context.Background(), sql)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit(context.Background()))
	require.Equal(t, left, one[int](h, "SELECT frozen_count FROM public.queue_operator_action WHERE action = 'webhook_subscription_write' ORDER BY id DESC LIMIT 1"))
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.queue_operator_action a WHERE to_jsonb(a)::text ~ 'pw-|k-one|k-two'"), "no secret of a URL is kept")
}

// Of two sessions that add, or enable, the same subscription at once, the second one is refused.
func TestTwoWebhookSubscriptionsAtOnce(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	admin := c.as("subscription_admin")
	var off []int64
	for range 2 {
		h.exec("INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('off', 'https://a.example', false, true)")
		off = append(off, one[int64](h, "SELECT max(id) FROM public.subscriptions"))
	}
	const add, enable = "public.fn_webhook_subscription_add('{new}', 'https://a.example', NULL, true, 'ann', 'r')", "public.fn_webhook_subscription_activate(%d, true, 'ann', 'r')"
	for first, second := range map[string]string{add: add, fmt.Sprintf(enable, off[0]): fmt.Sprintf(enable, off[1])} {
		tx := c.begin(admin)
		_, err := tx.Exec(t.Context(), "SELECT "+first)
		require.NoError(t, err)
		other := meanwhile(t, admin, h.root, tx, second)
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, "exists", other.got(t)["rule"], second)
	}
}

func TestMaskURL(t *testing.T) {
	h := newHooks(t)
	for url, want := range map[string]string{
		"https://a.example:8443/x": "https://a.example:8443/x", "http://u:p@h/x": "http://•••@h/x", "http://u:p@q@h/x": "http://•••@h/x",
		"http://u:p/w?x@h/y": "http://•••@h/y", "http://h/x?a=b#c": "http://h/x?•••", "http://h/#tok": "http://h/#•••", "http://h/x@y": "http://h/•••",
		"no url": "no url", "": "", "https://hooks.slack.com/services/T0/B0/abc": "https://hooks.slack.com/services/•••",
	} {
		require.Equal(t, want, one[string](h, "SELECT public.fn_mask_url($1)", url), url)
	}
}

// A producer writes events and can read their ids again; in no way can it read a payload, its own
// included.
func TestProducerReadsNoPayload(t *testing.T) {
	h := newHooks(t)
	h.exec(`INSERT INTO public.events (external_event_id, event_type, payload) VALUES ('theirs', 'order', '{"canary": "c4n4ry"}')`)
	p := h.db.Pool(t, pgtest.Login(t, h.db, "event_ingest_writer"))
	var id int64
	require.NoError(t, p.QueryRow(context.Background(), `INSERT INTO public.events (external_event_id, event_type, payload) VALUES ('mine', 'order', '{}')
		ON CONFLICT (external_event_id) DO NOTHING RETURNING id`).Scan(&id))
	require.Equal(t, id, one[int64](h, "SELECT id FROM public.events WHERE external_event_id = 'mine'"))
	for _, sql := range []string{
		"SELECT payload FROM public.events", "SELECT * FROM public.events", "SELECT e FROM public.events e", "SELECT event_type FROM public.events", "TABLE public.events",
		"SELECT id FROM public.events WHERE payload @> '{\"canary\": \"c4n4ry\"}'", "COPY public.events (payload) TO STDOUT",
		"INSERT INTO public.events (event_type, payload) VALUES ('a', '{}') RETURNING payload",
		"INSERT INTO public.events (external_event_id, event_type, payload) VALUES ('theirs', 'a', '{}') ON CONFLICT (external_event_id) DO UPDATE SET payload = events.payload RETURNING payload",
		"SELECT safe_payload FROM public.event_outbox", "SELECT payload FROM public.job_queue", "SELECT payload FROM public.v_job", "SELECT payload_snapshot FROM public.dead_letters",
		"SELECT public.fn_payload_masked('webhook', '1')", "SELECT * FROM public.fn_event_inbox('role:health_owner')",
	} {
		fails(t, p, "42501", sql)
	}
	_, err := p.Exec(context.Background(), "INSERT INTO public.events (external_event_id, event_type, payload) VALUES ('theirs', 'a', '{}')")
	refused(t, "23505", err, "the same id")
	require.NotContains(t, fmt.Sprintf("%+v", err), "c4n4ry")
}
