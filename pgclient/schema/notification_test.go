// Staged notifications, P3D4C1: the tests T1 to T13 of that document. Rows are backdated so that
// the debounce has passed.

package schema_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

type board struct {
	*core
	writer, worker *pgxpool.Pool
}

func newBoard(t *testing.T) board {
	c := newCore(t)
	return board{c, c.as("event_ingest_writer"), c.as("dot_executor")}
}

// save writes a unit with fn_iu_save; document or batch "" = none.
func (b board) save(address, actor, document, batch string) (unit string) {
	b.t.Helper()
	got := call(b.t, b.writer, "public.fn_iu_save($1, 'what it says', $2, NULLIF($3, ''), NULLIF($4, ''))", address, actor, document, batch)
	require.NotContains(b.t, got, "refused")
	return got["unit_id"].(string)
}

// age makes the staged notifications old enough to be sent.
func (b board) age() {
	b.t.Helper()
	b.exec("UPDATE public.iu_notification_pending SET created_at = now() - interval '120 seconds' WHERE processed_at IS NULL")
}

func (b board) tick() map[string]any {
	b.t.Helper()
	return call(b.t, b.worker, "public.fn_iu_notification_worker_tick()")
}

// events lists the notifications that were sent: type, stream, address, actor and, for a document,
// the number of its new units.
func (b board) events() []string {
	b.t.Helper()
	return get[[]string](b.core, `SELECT COALESCE(array_agg(concat_ws(' ', event_type, event_stream, canonical_address, actor_ref, payload ->> 'piece_count')
		ORDER BY event_type, canonical_address), '{}') FROM public.iu_notification_event`)
}

// counted requires that the counters equal a count of the table.
func (b board) counted() {
	b.t.Helper()
	require.Equal(b.t,
		get[string](b.core, "SELECT count(*) FILTER (WHERE failed_at IS NULL) || ' ' || count(failed_at) FROM public.iu_notification_pending WHERE processed_at IS NULL"),
		get[string](b.core, `SELECT COALESCE(sum(n) FILTER (WHERE k1 = 'waiting'), 0) || ' ' || COALESCE(sum(n) FILTER (WHERE k1 = 'failed'), 0)
			FROM public.v_queue_counter WHERE scope = 'notification_pending'`), "the counters say what the table holds")
}

func (b board) logs() int {
	return get[int](b.core, "SELECT count(*) FROM public.iu_notification_worker_log")
}

func TestNotificationT1SinglePieceBirth(t *testing.T) {
	b := newBoard(t)
	unit := b.save("doc/one", "user:ann", "", "")
	require.Equal(t, "piece_birth doc/one user:ann t t", get[string](b.core, `SELECT concat_ws(' ', p.event_kind, p.canonical_address, p.actor_ref,
		p.unit_id = $1, p.ref_id = v.id) FROM public.iu_notification_pending p JOIN public.unit_version v ON v.unit_id = p.unit_id AND v.version_seq = 1`, unit))
	require.Empty(t, b.events())
	b.counted()
	b.age()
	got := b.tick()
	require.Equal(t, []any{"processed", 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0}, []any{got["status"], got["pending_pre"], got["pending_post"], got["groups_emitted"],
		got["pieces_emitted"], got["conflicts_skipped"], got["rows_marked"], got["error_count"]})
	require.Equal(t, []string{"new_piece_created update doc/one user:ann"}, b.events())
	require.Equal(t, 1, b.logs())
	b.counted()
	require.Equal(t, "idle", b.tick()["status"])
	require.Equal(t, 1, b.logs(), "an idle run leaves no row")
	_, err := tryCall(b.writer, "public.fn_iu_save('doc/one', 'other text', 'user:bob')")
	refused(t, "23505", err, "again")
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, unit, pg.Detail)
}

func TestNotificationT2BatchRollup(t *testing.T) {
	b := newBoard(t)
	for i := range 3 {
		b.save(fmt.Sprintf("doc/%d", i), "user:ann", "doc", "")
	}
	b.age()
	got := b.tick()
	require.Equal(t, []any{1.0, 0.0, 3.0}, []any{got["groups_emitted"], got["pieces_emitted"], got["rows_marked"]})
	require.Len(t, b.events(), 1)
	require.Equal(t, `{"stable_key": "doc", "piece_count": 3} true`, get[string](b.core, `SELECT e.payload::text || ' ' || EXISTS (
		SELECT 1 FROM public.iu_notification_pending p WHERE (p.unit_id, p.ref_id, p.canonical_address) = (e.unit_id, e.ref_id, e.canonical_address)) FROM public.iu_notification_event e`),
		"unit, ref and address are of the same piece")
}

// New units are grouped by document before batch; units of a batch without a document form a group
// too.
func TestNotificationT2GroupsByDocumentThenBatch(t *testing.T) {
	b := newBoard(t)
	b.save("a/1", "user:ann", "a", "night")
	b.save("a/2", "user:ann", "a", "other")
	b.save("x/1", "user:bob", "", "night")
	b.save("x/2", "user:bob", "", "night")
	b.save("x/3", "user:bob", "  ", "")
	b.exec("SELECT public.fn_dot_config_set('notification.batch_piece_threshold', '1', 'test', 'clamped to 2')")
	b.age()
	b.tick()
	require.Equal(t, []string{"document_imported update a/1 user:ann 2", "document_imported update x/1 user:bob 2", "new_piece_created update x/3 user:bob"}, b.firsts())
	b.exec("SELECT public.fn_dot_config_set('notification.batch_piece_threshold', '900', 'test', 'clamped to 50')")
	for i := range 49 {
		b.save(fmt.Sprintf("y/%d", i), "user:ann", "y", "")
	}
	b.age()
	require.EqualValues(t, 49, b.tick()["pieces_emitted"], "one short of the threshold")
	for i := range 50 {
		b.save(fmt.Sprintf("z/%d", i), "user:ann", "z", "")
	}
	b.age()
	require.EqualValues(t, 1, b.tick()["groups_emitted"])
}

// firsts returns events, with the address of a unit in each document_imported replaced by that of
// unit 1: all units have the same age, so that the worker may name any of them.
func (b board) firsts() []string {
	all := b.events()
	for i := range all {
		all[i] = regexp.MustCompile(`^(document_imported update \w+)/\d`).ReplaceAllString(all[i], "$1/1")
	}
	return all
}

func TestNotificationT3UnrelatedPieces(t *testing.T) {
	b := newBoard(t)
	for _, d := range []string{"a", "b", "c"} {
		b.save(d+"/1", "user:ann", d, "")
	}
	b.age()
	b.tick()
	require.Equal(t, []string{"new_piece_created update a/1 user:ann", "new_piece_created update b/1 user:ann", "new_piece_created update c/1 user:ann"}, b.events())
}

func TestNotificationT4NoStableKey(t *testing.T) {
	b := newBoard(t)
	b.save("a", "user:ann", "", "")
	b.save("b", "user:ann", "", "")
	b.save("c", "user:ann", "", "")
	b.age()
	require.EqualValues(t, 3, b.tick()["pieces_emitted"], "no key is no group")
}

func TestNotificationT5CreatorSelfRead(t *testing.T) {
	b := newBoard(t)
	login := map[string]string{"ann": pgtest.Login(t, b.db, "event_ingest_writer"), "bob": pgtest.Login(t, b.db, "event_ingest_writer")}
	ann, bob := "user:"+login["ann"], "user:"+login["bob"]
	as := map[string]*pgxpool.Pool{ann: b.db.Pool(t, login["ann"]), bob: b.db.Pool(t, login["bob"])}
	b.save("mine", ann, "", "")
	b.save("theirs", bob, "", "")
	b.age()
	b.tick()
	states := func(reader string) string {
		rows, err := as[reader].Query(context.Background(), "SELECT canonical_address || ' ' || read_state FROM public.fn_iu_notification_board($1) ORDER BY 1", reader)
		require.NoError(t, err)
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return fmt.Sprint(got)
	}
	require.Equal(t, "[mine implicit_self theirs unread]", states(ann))
	require.Equal(t, "[mine unread theirs implicit_self]", states(bob))
	ids := get[[]string](b.core, "SELECT array_agg(id::text) FROM public.iu_notification_event")
	mark := "public.fn_iu_notification_mark_read($1, $2)"
	require.EqualValues(t, 1, call(t, as[ann], mark, ann, ids)["marked"], "one's own needs no reading")
	require.EqualValues(t, 0, call(t, as[ann], mark, ann, ids)["marked"])
	require.Equal(t, "[mine implicit_self theirs read]", states(ann))
	require.Equal(t, "[mine unread theirs implicit_self]", states(bob))

	// nobody can read or mark notifications as another person, or as an unknown one
	for _, other := range []string{bob, "user:nobody_of_this_name", "nobody_of_this_name", "event_ingest_writer:x", "user:"} {
		fails(t, as[ann], "42501", "SELECT public.fn_iu_notification_board('"+other+"')")
		_, err := tryCall(as[ann], mark, other, ids)
		refused(t, "42501", err, other)
	}
	require.Equal(t, "[mine unread theirs implicit_self]", states(bob))
	require.EqualValues(t, 2, call(t, as[ann], mark, login["ann"], ids)["marked"], "a name without a kind")
	require.EqualValues(t, 2, call(t, as[ann], mark, "role:event_ingest_writer", ids)["marked"], "a group of the login")
}

func TestNotificationT6Comment(t *testing.T) {
	b := newBoard(t)
	unit := b.save("doc", "user:ann", "", "")
	got := call(t, b.writer, "public.fn_iu_comment($1, 'looks wrong', 'user:bob')", unit)
	require.Equal(t, []string{"comment_added comment doc user:bob"}, b.events())
	require.True(t, get[bool](b.core, "SELECT ref_id = $1 AND payload = '{}' FROM public.iu_notification_event", got["comment_id"]))
	require.Equal(t, 1, get[int](b.core, "SELECT count(*) FROM public.iu_notification_pending"), "the birth alone is staged")
	fails(t, b.writer, "23503", "SELECT public.fn_iu_comment(gen_random_uuid(), 'x', 'user:bob')")
	fails(t, b.writer, "22023", "SELECT public.fn_iu_comment($1, ' ', 'user:bob')", unit)
	fails(t, b.writer, "22023", "SELECT public.fn_iu_comment($1, 'x', '')", unit)
	fails(t, b.writer, "22023", "SELECT public.fn_iu_save('', 'x', 'user:bob')")
	fails(t, b.writer, "22023", "SELECT public.fn_iu_save('b', 'x', 'user:bob', repeat('d', 501))")
}

func TestNotificationT7Draft(t *testing.T) {
	b := newBoard(t)
	unit := b.save("doc", "user:ann", "", "")
	call(t, b.writer, "public.fn_iu_draft_create($1, 'better', 'user:bob')", unit)
	require.Equal(t, []string{"draft_created review doc user:bob"}, b.events())
	require.Equal(t, 1, get[int](b.core, "SELECT count(*) FROM public.iu_notification_pending"))
	fails(t, b.writer, "23503", "SELECT public.fn_iu_draft_create(gen_random_uuid(), 'x', 'user:bob')")
}

func TestNotificationT8Version(t *testing.T) {
	b := newBoard(t)
	unit := b.save("doc", "user:ann", "", "")
	drafts := make([]string, 8)
	for i := range drafts {
		drafts[i] = call(t, b.writer, "public.fn_iu_draft_create($1, 'better', 'user:bob')", unit)["draft_id"].(string)
	}
	got := together(t, 16, func(i int) (map[string]any, error) {
		answer, err := tryCall(b.writer, "public.fn_iu_draft_apply($1, 'user:eve')", drafts[i/2])
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "55000" {
			return map[string]any{"applied": true}, nil
		}
		return answer, err
	})
	require.Equal(t, 8, count(got, "applied", true), "of two that apply a draft one does")
	require.Equal(t, "{2,3,4,5,6,7,8,9}", get[string](b.core, "SELECT array_agg(version_seq ORDER BY version_seq)::text FROM public.unit_version WHERE version_seq > 1"))
	require.Equal(t, 8, get[int](b.core, `SELECT count(*) FROM public.iu_notification_event e JOIN public.unit_version v ON v.id = e.ref_id
		WHERE event_type = 'version_applied' AND event_stream = 'update' AND actor_ref = 'user:eve' AND payload = jsonb_build_object('version_seq', v.version_seq)`))
	require.Equal(t, 1, get[int](b.core, "SELECT count(*) FROM public.iu_notification_pending"), "only the first version is a birth")
	fails(t, b.writer, "23503", "SELECT public.fn_iu_draft_apply(gen_random_uuid(), 'user:eve')")
}

// If two workers run at once, one processes and the other answers "skipped". A run that is
// cancelled or fails leaves no lock. The lock is a row of a lease table: an advisory lock, which
// any login could take, would let any login stop the worker.
func TestNotificationT10Lease(t *testing.T) {
	b := newBoard(t)
	b.save("a", "user:ann", "", "")
	b.age()
	tx := b.begin(b.worker)
	var first map[string]any
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT public.fn_iu_notification_worker_tick()").Scan(&first))
	require.Equal(t, "processed", first["status"])
	require.Equal(t, map[string]any{"status": "skipped", "reason": "lock_held"}, b.tick())
	require.NoError(t, tx.Rollback(t.Context()))
	require.Zero(t, b.logs(), "what was rolled back did not run")

	b.exec(`CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(30); RETURN NEW; END';
		CREATE TRIGGER slow BEFORE INSERT ON public.iu_notification_event FOR EACH ROW EXECUTE FUNCTION public.slow()`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := b.worker.Exec(ctx, "SELECT public.fn_iu_notification_worker_tick()")
		done <- err
	}()
	eventually(t, "it waits in the trigger", func() bool {
		return get[bool](b.core, "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database())")
	})
	b.exec("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()")
	require.ErrorContains(t, <-done, "57014")
	cancel()
	require.Zero(t, get[int](b.core, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"))
	require.Zero(t, b.logs())
	b.exec("DROP TRIGGER slow ON public.iu_notification_event")
	require.Equal(t, "processed", b.tick()["status"])
}

func TestNotificationT11Debounce(t *testing.T) {
	b := newBoard(t)
	b.save("young", "user:ann", "", "")
	require.Equal(t, "idle", b.tick()["status"])
	require.Empty(t, b.events())
	at := func(flag string, age time.Duration) string {
		b.exec("SELECT public.fn_dot_config_set('notification.debounce_seconds', $1, 'test', 'window')", flag)
		b.exec("UPDATE public.iu_notification_pending SET processed_at = NULL, created_at = now() - $1::interval", age.String())
		b.exec("DELETE FROM public.iu_notification_event")
		return b.tick()["status"].(string)
	}
	for _, c := range []struct {
		flag      string
		age       time.Duration
		want, why string
	}{
		{"90", 85 * time.Second, "idle", "the default"},
		{"91", 95 * time.Second, "processed", "the default and a little"},
		{"5", 55 * time.Second, "idle", "clamped up to 60"},
		{"6", 65 * time.Second, "processed", "clamped up to 60"},
		{"4000", 295 * time.Second, "idle", "clamped down to 300"},
		{"4001", 305 * time.Second, "processed", "clamped down to 300"},
	} {
		require.Equal(t, c.want, at(c.flag, c.age), c.why)
	}
	b.exec("UPDATE public.dot_config SET value = '-5' WHERE key = 'notification.debounce_seconds'")
	require.EqualValues(t, 60, get[int](b.core, "SELECT public.fn_iu_notification_debounce()"), "below zero is clamped up as well")
	b.exec("UPDATE public.dot_config SET value = 'soon' WHERE key = 'notification.debounce_seconds'")
	require.EqualValues(t, 90, get[int](b.core, "SELECT public.fn_iu_notification_debounce()"), "what cannot be read is the default")
}

// migrate down refuses while rows would be lost and prints how many of which kind. A dry run prints
// the same plan.
func TestNotificationT12RollbackPlan(t *testing.T) {
	b := newBoard(t)
	plan := func() []string {
		var s steps
		require.NoError(t, schema.Down(t.Context(), b.db.DSN(""), schema.DownOptions{DryRun: true}, s.add))
		return s.lines
	}
	require.Contains(t, fmt.Sprint(plan()), "notification_worker.sql would remove")
	require.NotContains(t, fmt.Sprint(plan()), "would lose")
	b.save("a/1", "user:ann", "a", "")
	b.save("a/2", "user:ann", "a", "")
	b.save("b", "user:ann", "", "")
	require.Subset(t, plan(), []string{"would lose 3 staged notifications not processed", "would lose 2 units with a source document or import batch",
		"would lose 3 information units with what they say", "refused without --discard"})
	err := schema.Down(t.Context(), b.db.DSN(""), schema.DownOptions{}, nil)
	require.ErrorContains(t, err, "3 staged notifications not processed")
	b.age()
	b.tick()
	lines := plan()
	require.Contains(t, lines, "would lose 2 notifications of new pieces and documents")
	require.NotContains(t, fmt.Sprint(lines), "staged notifications")
	require.Error(t, schema.Down(t.Context(), b.db.DSN(""), schema.DownOptions{}, nil))
	require.Equal(t, 2, get[int](b.core, "SELECT count(*) FROM public.iu_notification_event"), "nothing was changed")
}
