// The wake bridge sends no signal while it is off, and one signal per channel and statement while
// it is on. A signal that fails never fails the statement that wrote the row.

package schema_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

const longDomain = "d23456789_123456789_123456789_123456789_123456789_1" // 51 characters

// ear returns a session that listens on the channels of all domains of the test.
func (c *core) ear() *pgx.Conn {
	c.t.Helper()
	c.exec(`INSERT INTO public.event_type_registry VALUES ($1, 'made', 's', 'immediate', 'w'), ('iu', 'made', 's', 'immediate', 'iu_outbound_default'),
		('kg', 'made', 's', 'delayed', NULL), ('iu', repeat('é', 200), 's', 'immediate', NULL)`, longDomain)
	conn := c.db.Conn(c.t, "")
	for _, domain := range []string{longDomain, "iu", "kg", "system", "webhook"} {
		_, err := conn.Exec(context.Background(), "LISTEN "+pgx.Identifier{"queue_wake_" + domain}.Sanitize())
		require.NoError(c.t, err)
	}
	return conn
}

// heard returns the notifications that arrived up to now: it notifies a marker and waits for it.
func (c *core) heard(conn *pgx.Conn) (got []*pgconn.Notification) {
	c.t.Helper()
	c.exec("SELECT pg_notify('queue_wake_system', 'marker')")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		require.NoError(c.t, err)
		if n.Payload == "marker" {
			return got
		}
		got = append(got, n)
	}
}

const insertEvents = `INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane)
	SELECT r.event_domain, r.event_type, r.event_stream, r.delivery_lane FROM public.event_type_registry r, generate_series(1, $2) WHERE r.event_domain = ANY ($1::text[]) AND r.event_type = 'made'`

func TestWakeOff(t *testing.T) {
	c := newCore(t)
	conn, writer := c.ear(), c.as("event_ingest_writer")
	_, err := writer.Exec(context.Background(), insertEvents, []string{"iu", "kg"}, 10)
	require.NoError(t, err)
	_, err = writer.Exec(context.Background(), "INSERT INTO public.events (event_type, payload) VALUES ('x', '{}')")
	require.NoError(t, err)
	require.Equal(t, false, call(t, writer, "public.fn_queue_doorbell('iu')")["rung"])
	require.Equal(t, false, call(t, writer, "public.fn_queue_wake_signal('iu', 'job')")["signalled"])
	setFlag(t, c.as("workflow_admin"), "webhook.max_attempts", "4")
	call(t, c.as("workflow_admin"), register, "kg", "Agent")
	require.Empty(t, c.heard(conn))
}

func TestWakeOn(t *testing.T) {
	c := newCore(t)
	conn, writer := c.ear(), c.as("event_ingest_writer")
	c.exec("UPDATE public.dot_config SET value = 'true' WHERE key = 'queue.notify.bridge_enabled'")
	_, err := writer.Exec(context.Background(), insertEvents, []string{"iu", "kg", longDomain}, 1000)
	require.NoError(t, err)
	got := c.heard(conn)
	require.Len(t, got, 3, "one per channel and statement")
	channels := map[string]map[string]any{}
	for _, n := range got {
		var p map[string]any
		require.NoError(t, json.Unmarshal([]byte(n.Payload), &p))
		require.EqualValues(t, 1000, p["count"])
		for _, key := range []string{"layer", "event_id", "event_domain", "event_type", "lane", "occurred_at", "worker_hint", "count"} {
			require.Contains(t, p, key)
		}
		require.Len(t, p, 8, "a signal carries no content")
		channels[n.Channel] = p
	}
	require.Equal(t, "iu_outbound_default", channels["queue_wake_iu"]["worker_hint"])
	require.Equal(t, "event", channels["queue_wake_kg"]["layer"])
	require.Contains(t, channels, "queue_wake_"+longDomain)

	// A writer that sends its own wake signal sets a setting of its transaction: the bridge sends
	// none for it.
	require.NoError(t, pgx.BeginFunc(context.Background(), writer, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "SET LOCAL qtop.doorbell = 'on'")
		require.NoError(t, err)
		_, err = tx.Exec(context.Background(), insertEvents, []string{"iu"}, 5)
		require.NoError(t, err)
		_, err = tx.Exec(context.Background(), "INSERT INTO public.events (event_type, payload) VALUES ('x', '{}')")
		return err
	}))
	require.Empty(t, c.heard(conn))
	require.Equal(t, true, call(t, writer, "public.fn_queue_doorbell($1)", longDomain)["rung"])
	got = c.heard(conn)
	require.Len(t, got, 1)
	require.Equal(t, "queue_wake_"+longDomain, got[0].Channel)
	for _, bad := range []any{nil, "", "Iu", "a b", longDomain + "x", "1a"} {
		_, err := tryCall(writer, "public.fn_queue_doorbell($1)", bad)
		refused(t, "22023", err, "doorbell")
		_, err = tryCall(writer, "public.fn_queue_wake_signal($1, 'job')", bad)
		refused(t, "22023", err, "signal")
	}
	for _, layer := range []string{"event", "saga", "job", "doorbell"} {
		require.Equal(t, true, call(t, writer, "public.fn_queue_wake_signal('iu', $1)", layer)["signalled"])
		got = c.heard(conn)
		require.Len(t, got, 1)
		require.Equal(t, "queue_wake_iu", got[0].Channel)
		require.Contains(t, got[0].Payload, `"layer": "`+layer+`"`)
	}
	for _, bad := range []any{nil, "", "Job", "config"} {
		_, err := tryCall(writer, "public.fn_queue_wake_signal('iu', $1)", bad)
		refused(t, "22023", err, "layer")
	}

	_, err = writer.Exec(context.Background(), insertEvents, []string{"iu"}, 0)
	require.NoError(t, err)
	_, err = writer.Exec(context.Background(), `INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane)
		VALUES ('iu', repeat('é', 200), 's', 'immediate')`)
	require.NoError(t, err, "the longest type costs no row")
	got = c.heard(conn)
	require.Len(t, got, 1, "none for no row")
	require.Less(t, len(got[0].Payload), 8000)
	c.exec("SET session_replication_role = replica; UPDATE public.event_type_registry SET worker_name = repeat('w', 9000) WHERE event_domain = 'iu'; SET session_replication_role = origin") // a row of an older release
	_, err = writer.Exec(context.Background(), insertEvents, []string{"iu"}, 1)
	require.NoError(t, err)
	require.Empty(t, c.heard(conn), "a signal that is too long is left out")
	require.Equal(t, 3007, get[int](c, "SELECT count(*) FROM public.event_outbox"))
}

// Rows are written even if the function that sends wake signals fails.
func TestWakeNeverRaises(t *testing.T) {
	c := newCore(t)
	c.ear()
	c.exec("UPDATE public.dot_config SET value = 'true' WHERE key = 'queue.notify.bridge_enabled'")
	c.exec("CREATE OR REPLACE FUNCTION public.fn_queue_wake(p_channel text, p_payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$")
	_, err := c.as("event_ingest_writer").Exec(context.Background(), insertEvents, []string{"iu", "kg"}, 2)
	require.NoError(t, err)
	require.Equal(t, 4, get[int](c, "SELECT count(*) FROM public.event_outbox"))
	c.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)")
	require.Equal(t, strings.Repeat("iu ", 3)+"kg kg", get[string](c, "SELECT string_agg(event_domain, ' ' ORDER BY event_domain) FROM public.event_outbox"))
}
