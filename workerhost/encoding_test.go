package workerhost_test

import (
	"encoding/json"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost"
)

// Receivers get the same bytes, whatever encoding the client's role, database, connection string
// or environment sets.
func TestBytesUnderEveryClientEncoding(t *testing.T) {
	const payload = `{"word": "café 😀 日本 \u007f", "name": "Ærøskøbing"}`
	w := newWorld(t)
	u, err := url.Parse(w.dsn)
	require.NoError(t, err)
	user := pgx.Identifier{u.User.Username()}.Sanitize()
	db := pgx.Identifier{w.db.Name}.Sanitize()
	r := receive(t, ok)
	w.subscribe("encoded", r.URL, nil)
	say := func(more string) string {
		q := u.Query()
		name, value, _ := strings.Cut(more, "=")
		q.Set(name, value)
		x := *u
		x.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
		return x.String()
	}
	t.Setenv("PGCLIENTENCODING", "LATIN1")
	for i, c := range []struct{ sql, dsn string }{
		{"SELECT 1", w.dsn},
		{"SELECT 1", say("client_encoding=LATIN1")},
		{"SELECT 1", say("options=-c client_encoding=LATIN1")},
		{"ALTER DATABASE " + db + " SET client_encoding = LATIN1", w.dsn},
		{"ALTER ROLE " + user + " SET client_encoding = SQL_ASCII", w.dsn},
		{"ALTER ROLE " + user + " IN DATABASE " + db + " SET client_encoding = WIN1252", say("Client_Encoding=LATIN9")},
	} {
		w.exec(c.sql)
		w.exec("INSERT INTO public.events (event_type, payload) VALUES ('encoded', $1::jsonb)", payload)
		h := runHost(t, c.dsn, workerhost.Options{})
		w.becomes(i+1, completed)
		var got struct{ Data json.RawMessage }
		body := r.all()[i].body
		if json.Unmarshal(body, &got) != nil || got.Data == nil {
			got.Data = body
		}
		require.JSONEq(t, payload, string(got.Data), "%v", c)
		require.Contains(t, string(body), "café 😀 日本", "%v", c)
		require.Contains(t, string(body), "Ærøskøbing", "%v", c)
		require.NoError(t, h.stop())
	}
	w.becomes(0, unfinished)
}

// A host claims nothing from a database whose encoding is not UTF-8. Older releases could be
// installed in such a database.
func TestOtherEncodingsAreRefused(t *testing.T) {
	db := pgtest.Encoded(t, "SQL_ASCII")
	admin := db.Conn(t, "")
	_, err := admin.PgConn().Exec(t.Context(), schema.SQL()).ReadAll()
	require.NoError(t, err)
	r := receive(t, ok)
	for _, sql := range []string{
		"INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('x', '" + r.URL + "', true, true)",
		"INSERT INTO public.events (event_type, payload) VALUES ('x', '{\"word\": \"café\"}')",
		"SELECT public.fn_webhook_router_run()", "SELECT public.fn_saga_orchestrator_run()",
	} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: db.DSN(pgtest.Login(t, db, hostRoles()...)), WorkConns: hostConns})
	require.NoError(t, err)
	defer client.Close()
	host, err := workerhost.New(client, workerhost.Options{ID: "h", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	err = host.Run(t.Context())
	require.ErrorContains(t, err, "the encoding of the database is SQL_ASCII, and qtop needs UTF8")
	require.Equal(t, queue.KindConfig, queue.KindOf(err))
	_, err = work.New(client).ClaimWebhooks(t.Context(), "h", 1, nil, 1, 0)
	require.ErrorContains(t, err, "SQL_ASCII")
	_, err = client.Snapshot(t.Context(), 0)
	require.ErrorContains(t, err, "SQL_ASCII")
	require.Zero(t, r.count())
	var left int
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Pending' AND lease_until IS NULL").Scan(&left))
	require.Equal(t, 1, left, "the job still waits")
}
