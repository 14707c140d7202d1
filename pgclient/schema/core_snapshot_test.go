// The snapshot: shared between sessions, complete, and valid JSON for every value that a row can
// have.

package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// complete fails the test for every field of the Go type typ that v, the decoded JSON at path, does
// not have: such a field would stay empty on the screen without an error.
func complete(t *testing.T, path string, typ reflect.Type, v any) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			if typ.Kind() == reflect.Slice {
				complete(t, fmt.Sprint(path, "[", i, "]"), typ.Elem(), e)
			}
		}
	case map[string]any:
		if typ.Kind() == reflect.Map {
			for k, e := range v {
				complete(t, path+"."+k, typ.Elem(), e)
			}
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for i := range typ.NumField() {
			name, opts, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			_, derived := typ.Field(i).Tag.Lookup("derived") // computed in Go from another field
			if name == "-" || derived || strings.Contains(opts, "omitempty") {
				continue
			}
			require.Contains(t, v, name, "%s has no %s", path, name)
			complete(t, path+"."+name, typ.Field(i).Type, v[name])
		}
	}
}

func snapshotOf(t *testing.T, raw []byte) (s queue.Snapshot) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, &s))
	var loose map[string]any
	require.NoError(t, json.Unmarshal(raw, &loose))
	complete(t, "snapshot", reflect.TypeOf(s), loose)
	for _, section := range []string{"flags", "health", "alerts", "executors", "dead_groups", "waiting", "hosts", "held", "suspended", "ticks", "marks"} {
		require.NotNil(t, loose[section], "%s is a list, if empty", section)
	}
	require.Len(t, s.Flow.Delivered, 60)
	require.Len(t, s.Flow.Dead, 60)
	require.Positive(t, s.TookMS)
	require.WithinDuration(t, time.Now(), s.TakenAt, time.Minute)
	return s
}

func TestSnapshotEmpty(t *testing.T) {
	c := newCore(t)
	raw := get[[]byte](c, "SELECT public.fn_queue_snapshot('0')")
	s := snapshotOf(t, raw)
	require.NotEmpty(t, s.Flags)
	require.NotEmpty(t, s.Ticks)
	require.NotEmpty(t, s.Server.Version.String())
	require.Empty(t, s.Alerts)
	fails(t, c.root, "22023", "SELECT public.fn_queue_snapshot('-1 second')")
	fails(t, c.root, "22023", "SELECT public.fn_queue_snapshot(NULL)")
	fails(t, c.root, "22023", "SELECT public.fn_queue_picture('-1 second')")
	for _, fn := range []string{"fn_queue_snapshot", "fn_queue_picture"} {
		fails(t, c.as("dot_executor", "event_ingest_writer", "subscription_admin"), "42501", "SELECT public."+fn+"('0')")
	}
	for _, role := range []string{"queue_viewer", "workflow_admin", "dead_letter_operator"} {
		require.NotNil(t, call(t, c.as(role), "public.fn_queue_snapshot('0')")["flags"], role)
	}
}

func TestSnapshotFull(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	sub, _ := h.die("order", 3)
	h.finish("", func() []lease { h.subscribe("fine"); h.emit("fine", 2); h.step(); return h.claim(2) }()...)
	h.emit("order", 2)
	h.exec("INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) VALUES ($1, 'operator', 'infinity', 'ann')", sub)
	h.step()
	c.executor("kg", 60, 300, 700)
	h.exec(`UPDATE public.queue_heartbeat SET last_beat_payload = '{"state": "working", "in_flight": 3, "done_total": 9, "last_work_at": "2026-01-01T00:00:00Z"}'
		WHERE executor_id = 'kg'`)
	h.exec("SELECT public.fn_queue_alert_ack('kg', 'ann', 'mine', '1 hour')")
	h.exec("SELECT public.fn_dot_config_set('webhook.worker.enabled', 'false', 'ann', 'maintenance', now() + interval '1 hour')")
	h.exec(`SELECT public.fn_queue_host_register('h1', gen_random_uuid(), 'v1', '{webhook_worker}')`)
	h.exec(`UPDATE public.queue_host SET progress = '{"webhook_worker": {"state": "running", "last_tick": "2026-01-01T00:00:00.5Z", "done": 4, "errors": 1}}'`)
	h.exec("SELECT public.fn_event_emit('system', 'queue_worker_silent', 'alert', 'immediate', 'info', NULL, NULL, '{}', NULL, NULL, NULL)")
	h.exec("INSERT INTO public.iu_route_worker_cursor (worker_name, event_domain) VALUES ('iu_outbound_default', 'system')")
	h.exec(`DO $$ BEGIN EXECUTE replace(pg_get_functiondef('public.fn_routing_held()'::regprocedure), '1 minute', '0'); END $$`)
	open, err := h.root.Begin(context.Background())
	require.NoError(t, err)
	defer func() { _ = open.Rollback(context.Background()) }()
	_, err = open.Exec(context.Background(), "INSERT INTO public.events (event_type, payload) VALUES ('x', '{}')")
	require.NoError(t, err)
	h.exec("UPDATE public.queue_tick_worker SET last_run_at = now() - interval '1 day', last_result = '{\"x\": 1}'")
	s := snapshotOf(t, one[[]byte](h, "SELECT public.fn_queue_snapshot('0')"))

	require.Len(t, s.DeadGroups, 1)
	require.EqualValues(t, 3, s.DeadGroups[0].Open)
	require.Len(t, s.DeadGroups[0].Trend, 12)
	require.EqualValues(t, 3, s.Flow.DeadOpen)
	require.EqualValues(t, 2, s.Flow.Delivered[59]+s.Flow.Delivered[58])
	require.EqualValues(t, 1, s.Flow.HostsAlive)
	require.Len(t, s.Suspended, 1)
	require.Nil(t, s.Suspended[0].Until, "for ever is no time")
	require.Len(t, s.Held, 1)
	require.Len(t, s.Hosts, 1)
	require.EqualValues(t, 4, s.Hosts[0].Progress["webhook_worker"].Done)
	require.NotNil(t, s.Hosts[0].Progress["webhook_worker"].LastTick)
	require.NotEmpty(t, s.Waiting)
	require.Greater(t, len(s.Actions), 1, "the newest first")
	require.Equal(t, "flag_set webhook.worker.enabled ann maintenance 1", fmt.Sprint(s.Actions[0].Action, " ", s.Actions[0].Target, " ", s.Actions[0].By, " ", s.Actions[0].Reason, " ", s.Actions[0].Rows))
	require.Equal(t, "ack", s.Actions[1].Action.String())
	require.False(t, s.Actions[0].At.IsZero())
	sources := map[string]bool{}
	for _, r := range s.Health {
		sources[r.Source.String()] = true
	}
	require.Subset(t, sources, map[string]bool{"cursor": true, "heartbeat": true, "dead_letter_webhook": true, "backlog_webhook": true, "cursor_held": true})
	for _, e := range s.Executors {
		if e.ID.String() == "kg" {
			require.Equal(t, "silent ann 3 9", fmt.Sprint(e.State, " ", e.AckedBy, " ", *e.InFlight, " ", *e.DoneTotal))
			require.NotNil(t, e.LastWorkAt)
		}
	}
	for _, f := range s.Flags {
		if f.Key.String() == "webhook.worker.enabled" {
			require.Equal(t, "true ann maintenance true", fmt.Sprint(f.Off, " ", f.UpdatedBy, " ", f.Reason, " ", f.RevertsTo))
			require.NotNil(t, f.RevertsAt)
		}
	}
}

// The recent actions show what people did. Refusals, marks, flags that reverted and the brake are
// left out, and what one person did to many rows for one reason is one action.
func TestSnapshotActionsAreOfPeople(t *testing.T) {
	h := newHooks(t)
	audit := func(action, target, actor, reason, outcome string) {
		h.exec("SELECT public.fn_operator_audit($1, $2, $3, $4, NULL, NULL, NULL, NULL, $5)", action, target, actor, reason, outcome)
	}
	for i := range 3 {
		audit("requeue", fmt.Sprint("dead_letter ", i), "ann", "receiver healed", "done")
	}
	audit("requeue", "dead_letter 9", "ben", "receiver healed", "done")
	for _, action := range []string{"mark", "flag_revert", "bulk_brake", "webhook_subscription_write"} {
		audit(action, "x", "ann", "y", "done")
	}
	audit("tick", "retention_sweep", "ann", "now", "refused: leased")
	s := snapshotOf(t, one[[]byte](h, "SELECT public.fn_queue_snapshot('0')"))
	got := []string{}
	for _, a := range s.Actions {
		if a.Action.String() == "flag_set" {
			continue // written by newHooks
		}
		got = append(got, fmt.Sprint(a.By, " ", a.Action, " ", a.Target, " ", a.Rows))
	}
	require.Equal(t, []string{"ben requeue dead_letter 9 1", "ann requeue dead_letter 2 3"}, got)
}

// No value that an executor or a host writes makes the snapshot fail.
func TestSnapshotHostileRows(t *testing.T) {
	c := newCore(t)
	dot := c.as("dot_executor")
	c.executor("kg", 60, 300, 1)
	for _, payload := range []string{
		`{"last_work_at": "2024-13-45T99:99:99Z"}`, `{"last_work_at": "9999-12-31T23:59:59-12:00"}`, `{"last_work_at": "0001-01-01T00:00:00Z"}`,
		`{"last_work_at": "infinity"}`, `{"last_work_at": 5}`, `{"in_flight": 1e300, "done_total": -1}`, `{"in_flight": "99999999999999999999"}`,
		`{"in_flight": 1.5, "state": {"a": []}}`, `{"state": null, "last_work_at": null}`,
	} {
		call(t, dot, "public.fn_queue_heartbeat_write('kg', $1, 'kg')", payload)
		snapshotOf(t, get[[]byte](c, "SELECT public.fn_queue_snapshot('0')"))
	}
	id := get[string](c, newUUID)
	call(t, dot, "public.fn_queue_host_register('h', $1, 'v', '{NULL,x}')", id)
	for _, progress := range []string{`[]`, `5`, `{"a": 5}`, `{"a": []}`, `{"a": {"last_tick": "soon", "done": "many", "errors": 1.5}}`,
		`{"a": {"done": 99999999999999999999, "last_tick": {}}}`, `null`, `{"a": {"state": 5}}`} {
		call(t, dot, "public.fn_queue_host_beat('h', $1, '{NULL}', -5, $2)", id, progress)
		snapshotOf(t, get[[]byte](c, "SELECT public.fn_queue_snapshot('0')"))
	}
}

func TestSnapshotShared(t *testing.T) {
	c := newCore(t)
	pool := c.wide(16, "queue_viewer")
	read := func(age string) (map[string]any, error) {
		return tryCall(pool, "public.fn_queue_snapshot($1)", age)
	}
	for _, stale := range []string{"DELETE FROM public.queue_snapshot", "UPDATE public.queue_snapshot SET taken_at = taken_at - interval '1 hour'"} {
		var got []map[string]any
		slow := func() bool { // the others wait for about a second
			return slices.ContainsFunc(got, func(s map[string]any) bool { return s["shared"] == false && s["took_ms"].(float64) > 500 })
		}
		for tries := 20; len(got) == 0 || count(got, "shared", false) > 1 && slow() && tries > 0; tries-- {
			c.exec(stale)
			got = together(t, 16, func(int) (map[string]any, error) { return read("30 seconds") })
		}
		require.Equal(t, 1, count(got, "shared", false), "one computes for all")
		require.Equal(t, 16, count(got, "taken_at", got[0]["taken_at"]))
	}
	a, err := read("0")
	require.NoError(t, err)
	b, err := read("0")
	require.NoError(t, err)
	require.NotEqual(t, a["taken_at"], b["taken_at"])

	// While one session computes the snapshot, the other sessions get the stored snapshot, even if
	// it is older than they asked for.
	tx := c.begin(c.root)
	_, err = tx.Exec(context.Background(), "SELECT FROM public.dot_iu_runtime_lease WHERE lease_name = 'queue_snapshot' FOR UPDATE")
	require.NoError(t, err)
	d, err := read("1 microsecond")
	require.NoError(t, err)
	require.Equal(t, b["taken_at"], d["taken_at"])
	// But who asks for age 0 never gets a snapshot from before the last change.
	c.exec("INSERT INTO public.queue_mark (at, label, created_by) VALUES (now(), 'just now', 'anna')")
	own, err := read("0")
	require.NoError(t, err)
	require.Equal(t, false, own["shared"])
	require.Contains(t, fmt.Sprint(own["marks"]), "just now")
	// If the lock is never released and the stored snapshot is too old, a session computes its own.
	c.exec("UPDATE public.queue_snapshot SET taken_at = taken_at - interval '1 hour'")
	e, err := read("1 microsecond")
	require.NoError(t, err)
	require.Equal(t, false, e["shared"])
}

// On a full disk the snapshot cannot be stored, but callers still get it.
func TestSnapshotOnAFullDisk(t *testing.T) {
	c := newCore(t)
	viewer := c.as("queue_viewer")
	c.exec(`CREATE FUNCTION public.full_disk() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$`)
	c.exec("CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON public.queue_snapshot FOR EACH ROW EXECUTE FUNCTION public.full_disk()")
	for range 2 {
		require.Equal(t, false, call(t, viewer, "public.fn_queue_snapshot()")["shared"])
	}
	c.exec("DROP TRIGGER full_disk ON public.queue_snapshot")
	require.Equal(t, false, call(t, viewer, "public.fn_queue_snapshot()")["shared"])
	require.Equal(t, true, call(t, viewer, "public.fn_queue_snapshot('1 minute')")["shared"])
}

func TestSnapshotReadOnly(t *testing.T) {
	c := newCore(t)
	viewer := c.as("queue_viewer")
	for _, mode := range []pgx.TxOptions{{AccessMode: pgx.ReadOnly}, {IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly}, {IsoLevel: pgx.RepeatableRead}} {
		require.NoError(t, pgx.BeginTxFunc(context.Background(), viewer, mode, func(tx pgx.Tx) error {
			var raw []byte
			err := tx.QueryRow(context.Background(), "SELECT public.fn_queue_snapshot('0')").Scan(&raw)
			if err == nil {
				require.False(t, snapshotOf(t, raw).Shared)
			}
			return err
		}))
	}
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.queue_snapshot"), "nothing was stored")
	require.Equal(t, false, call(t, viewer, "public.fn_queue_snapshot()")["shared"])
	require.NoError(t, pgx.BeginTxFunc(context.Background(), viewer, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var shared bool
		err := tx.QueryRow(context.Background(), "SELECT public.fn_queue_snapshot('1 minute') -> 'shared'").Scan(&shared)
		require.True(t, shared, "a read-only session takes the stored one")
		return err
	}))
}
