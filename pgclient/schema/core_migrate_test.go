// migrate up, down and status.

package schema_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// catalogue lists the objects in schema public with their definitions, owners and rights.
const catalogue = `
SELECT string_agg(line, E'\n' ORDER BY line) FROM (
	SELECT format('rel %s %s %s %s %s %s', c.relkind, c.relname, pg_get_userbyid(c.relowner), c.relacl, c.reloptions, obj_description(c.oid)) AS line
	FROM pg_class c WHERE ` + publicRelations + ` AND c.relkind <> 'i'
	UNION ALL SELECT format('col %s %s %s %s %s', a.attrelid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attacl) ||
		COALESCE(pg_get_expr(d.adbin, d.adrelid), '') FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE ` + publicRelations + ` AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped
	UNION ALL SELECT format('index %s', pg_get_indexdef(i.indexrelid)) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE ` + publicRelations + `
	UNION ALL SELECT format('view %s %s', c.relname, pg_get_viewdef(c.oid)) FROM pg_class c WHERE ` + publicRelations + ` AND c.relkind = 'v'
	UNION ALL SELECT format('fn %s %s %s %s', p.oid::regprocedure, p.proacl, pg_get_functiondef(p.oid), pg_get_userbyid(p.proowner)) || obj_description(p.oid)
		FROM pg_proc p WHERE ` + publicFunctions + `
	UNION ALL SELECT format('trg %s', pg_get_triggerdef(t.oid)) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
		WHERE ` + publicRelations + ` AND NOT t.tgisinternal
	UNION ALL SELECT format('con %s %s %s', o.conrelid::regclass, o.conname, pg_get_constraintdef(o.oid)) FROM pg_constraint o WHERE o.connamespace = 'public'::regnamespace
		AND (o.contypid = 0 OR o.contypid IN (SELECT oid FROM pg_type WHERE ` + publicTypes + `))
	UNION ALL SELECT format('type %s %s %s', y.typname, y.typtype, y.typacl) FROM pg_type y WHERE ` + publicTypes + `
	UNION ALL SELECT format('flag %s %s', key, value) FROM public.dot_config
	UNION ALL SELECT format('tick %s %s', worker_name, function) FROM public.queue_tick_worker) l`

type steps struct{ lines []string }

func (s *steps) add(line string) { s.lines = append(s.lines, line) }

func TestMigrateUpDownUp(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	ctx, dsn := context.Background(), db.DSN("")
	conn := db.Conn(t, "")
	listing := func() (s string) {
		t.Helper()
		require.NoError(t, conn.QueryRow(ctx, catalogue).Scan(&s))
		return s
	}
	st, err := schema.GetStatus(ctx, conn)
	require.NoError(t, err)
	require.EqualValues(t, 0, st.Current)
	require.Len(t, st.Pending, int(schema.Latest()))

	var first, second steps
	require.NoError(t, schema.Up(ctx, dsn, first.add))
	require.Len(t, first.lines, int(schema.Latest())+2, "whose roles they are, a line per migration and one of the code")
	once := listing()
	require.NoError(t, schema.Up(ctx, dsn, second.add))
	require.Len(t, second.lines, 1)
	require.Contains(t, second.lines[0], "already")
	require.Equal(t, once, listing(), "up twice changes nothing")
	st, err = schema.GetStatus(ctx, conn)
	require.NoError(t, err)
	require.EqualValues(t, schema.Latest(), st.Current)
	require.Equal(t, st.Latest, st.Current)
	require.Equal(t, schema.Current().Hash, st.InstalledHash)
	require.Equal(t, st.Code, st.InstalledCode)
	require.Empty(t, st.Pending)
	differs, err := schema.Differences(ctx, conn)
	require.NoError(t, err)
	require.Empty(t, differs)
	what, _ := st.Refusal()
	require.Empty(t, what)

	var dry, down steps
	require.NoError(t, schema.Down(ctx, dsn, schema.DownOptions{DryRun: true}, dry.add))
	require.Equal(t, once, listing(), "a dry run changes nothing")
	require.Len(t, dry.lines, int(schema.Latest())+2, "a line per migration, one of the code and one of the rows")
	for _, dropped := range []string{"TRIGGER trg_saga_webhook_id ON public.webhook_delivery_sagas", "INDEX public.ix_queue_bulk_waiting", "TABLE public.job_root"} {
		_, err := conn.Exec(ctx, "DROP "+dropped) // by hand: none of them is in the way
		require.NoError(t, err)
	}
	require.NoError(t, schema.Down(ctx, dsn, schema.DownOptions{}, down.add))
	var left int
	require.NoError(t, conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM pg_class WHERE `+publicRelations+`) +
		(SELECT count(*) FROM pg_proc WHERE `+publicFunctions+`) +
		(SELECT count(*) FROM pg_type WHERE `+publicTypes+`)`).Scan(&left))
	require.Zero(t, left, "nothing is left behind")
	require.NoError(t, schema.Down(ctx, dsn, schema.DownOptions{}, nil), "nothing to remove")
	require.NoError(t, schema.Up(ctx, dsn, nil))
	require.Equal(t, once, listing(), "up, down, up makes no difference")
}

func TestMigrateRefusesForeign(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	conn := db.Conn(t, "")
	_, err := conn.Exec(t.Context(), "CREATE TABLE public.events (id int); CREATE VIEW public.v_queue_alert AS SELECT 1 AS x")
	require.NoError(t, err)
	err = schema.Up(t.Context(), db.DSN(""), nil)
	require.Equal(t, queue.KindFailed, queue.KindOf(err))
	require.Contains(t, err.Error(), "table events (owner postgres), view v_queue_alert")
	require.NotContains(t, err.Error(), "\n")
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE "+publicRelations).Scan(&n))
	require.Equal(t, 2, n, "nothing was changed, as it says")
}

// Two hosts that start at the same time may both migrate the same database.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = schema.Up(context.Background(), db.DSN(""), nil) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// The output of `migrate sql` makes the same schema as Up, except for the partitions of days and
// months to come and the record of the installation, which the next Up adds.
func TestMigrateByHand(t *testing.T) {
	t.Parallel()
	db, fresh := pgtest.Empty(t), pgtest.New(t)
	conn := db.Conn(t, "")
	_, err := conn.PgConn().Exec(t.Context(), "BEGIN;"+schema.SQL()+"COMMIT").ReadAll()
	require.NoError(t, err)
	require.Equal(t, stable(t, fresh.Conn(t, "")), stable(t, conn))
	require.NotRegexp(t, "function|view|trigger", up(t, db, schema.Current()), "all of it is as it should be")
	differs, err := schema.Differences(t.Context(), conn)
	require.NoError(t, err)
	require.Empty(t, differs)
}

func TestMigrateRefusesNewer(t *testing.T) {
	c := newCore(t)
	c.exec("UPDATE public.qtop_schema_version SET version = 999")
	err := schema.Up(t.Context(), c.db.DSN(""), nil)
	require.ErrorContains(t, err, "version 999, this qtop knows")

	c.exec("DELETE FROM public.qtop_schema_version") // as after the restore of a dump without rows
	_, none := schema.GetStatus(t.Context(), c.db.Conn(t, ""))
	for _, err := range []error{none, schema.Up(t.Context(), c.db.DSN(""), nil), schema.Down(t.Context(), c.db.DSN(""), schema.DownOptions{DryRun: true}, nil)} {
		require.ErrorContains(t, err, "public.qtop_schema_version has no row: the schema was restored without its rows")
	}
}

func TestMigrateNeedsRights(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	err := schema.Up(t.Context(), db.DSN(pgtest.Login(t, db)), nil)
	require.Equal(t, queue.KindPermission, queue.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "run migrate up as a superuser")
}

// The remedy of a migrate down without rights is of migrate down: nobody else's names are in its way.
func TestDownNeedsRights(t *testing.T) {
	c := newCore(t)
	viewer := c.db.DSN(pgtest.Login(t, c.db, "queue_viewer"))
	for _, login := range []string{viewer, c.db.DSN(pgtest.Login(t, c.db))} {
		err := schema.Down(t.Context(), login, schema.DownOptions{Discard: true}, nil)
		require.Equal(t, queue.KindPermission, queue.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "nothing was changed; run migrate down as a superuser, or as a role with CREATEROLE that owns the database")
		require.NotContains(t, err.Error(), "whose names")
	}
}

func TestMigrateDownRefusesLoss(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	_, deadLetters := h.die("dead", 2)
	h.planned(deadLetters, 1, 0, 0)
	h.emit("dead", 3)
	j := &jobs{core: c, work: c.as("event_ingest_writer", "dot_executor", "dead_letter_operator", "workflow_admin")}
	j.deadLetter("k", "iu", "TIMEOUT")
	j.put("k", "iu", 3)
	j.one("undertaker")
	c.executor("kg", 60, 300, 1)
	h.exec("INSERT INTO public.queue_host (host_id, instance, last_seen_at) VALUES ('h', gen_random_uuid(), now()), ('ahead', gen_random_uuid(), now() + interval '1 day')")
	h.exec("SELECT public.fn_event_emit('system', 'queue_worker_silent', 'alert', 'immediate', 'info', NULL, NULL, '{}', NULL, NULL, NULL)")
	// A search_path of the login must not hide the installed schema from migrate.
	login := pgtest.Login(t, h.db)
	h.exec("ALTER ROLE " + login + " SUPERUSER")
	h.exec("ALTER ROLE " + login + " SET search_path = elsewhere")
	dsn := h.db.DSN(login)
	before := get[string](c, catalogue)
	err := schema.Down(t.Context(), dsn, schema.DownOptions{}, nil)
	require.Equal(t, queue.KindFailed, queue.KindOf(err))
	for _, loss := range []string{"2 open dead letters", "3 unrouted webhook events", "1 unrouted event", "2 registered executors of others",
		"3 jobs not finished", "1 leased job", "1 open job dead letter", "1 bulk operation under way", "1 live worker host", "--discard"} {
		require.Contains(t, err.Error(), loss)
	}
	var dry steps
	require.NoError(t, schema.Down(t.Context(), dsn, schema.DownOptions{DryRun: true, Discard: true}, dry.add))
	require.Contains(t, strings.Join(dry.lines, "\n"), "would lose 2 open dead letters")
	require.Equal(t, before, get[string](c, catalogue))
	require.NoError(t, schema.Down(t.Context(), dsn, schema.DownOptions{Discard: true}, nil))
	require.Zero(t, get[int](c, "SELECT count(*) FROM pg_class WHERE "+publicRelations))
}
