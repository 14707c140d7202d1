// Objects of other owners on tables of qtop or under names that qtop uses, and what migrate does
// about them.

package schema_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// foreignObjects are statements that make objects which depend on objects of qtop. says lists how
// migrate down names what each statement makes.
var foreignObjects = []struct {
	sql  string
	says []string
}{
	{"ALTER TABLE public.event_outbox DETACH PARTITION public.event_outbox_default", []string{"trigger trg_event_outbox_default_no_truncate on public.event_outbox_default"}},
	{"CREATE VIEW app.v AS SELECT e.id FROM public.events e; CREATE VIEW app.v2 AS SELECT * FROM app.v", []string{"view app.v2", "view app.v"}},
	{"CREATE MATERIALIZED VIEW app.m AS SELECT s.id FROM public.subscriptions s", []string{"materialized view app.m"}},
	{"CREATE FUNCTION app.f(public.job_queue) RETURNS int LANGUAGE sql RETURN 1", []string{"function app.f(public.job_queue)"}},
	{"CREATE FUNCTION app.atomic() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM public.events; END", []string{"function app.atomic()"}},
	{"CREATE PROCEDURE app.p(public.events) LANGUAGE sql AS ''", []string{"procedure app.p(public.events)"}},
	{"CREATE TABLE app.typed (j public.event_class)", []string{"app.typed"}},
	{"CREATE TYPE app.pair AS (l public.events, r int)", []string{"app.pair"}},
	{"CREATE DOMAIN app.checked AS text CHECK (public.fn_cfg_bool(VALUE))", []string{"checked_check"}},
	{"CREATE TABLE app.child () INHERITS (public.queue_mark)", []string{"table app.child"}},
	{"CREATE TABLE app.leaf PARTITION OF public.event_outbox FOR VALUES FROM ('1999-01-01') TO ('1999-02-01')", []string{"table app.leaf"}},
	{"CREATE TABLE app.refers (id bigint REFERENCES public.events (id))", []string{"table constraint refers_id_fkey on app.refers"}},
	{"CREATE TABLE app.calls (b bool DEFAULT public.fn_cfg_bool('x'))", []string{"default value for app.calls.b"}},
	{"CREATE TABLE app.ruled (i int); CREATE RULE looks AS ON INSERT TO app.ruled DO ALSO SELECT count(*) FROM public.events", []string{"rule looks on app.ruled"}},
	{"CREATE INDEX mine ON public.events (created_at)", []string{"index public.mine"}},
	{"CREATE INDEX whole ON public.event_outbox (actor_ref)", []string{"index public.whole"}},
	{"CREATE TABLE app.indexed (k text); CREATE INDEX by_function ON app.indexed (public.fn_mask_fold(k))", []string{"index app.by_function"}},
	{"ALTER TABLE public.subscriptions ADD COLUMN team text DEFAULT 'x'", []string{"column public.subscriptions.team", "default value for public.subscriptions.team"}},
	{"ALTER TABLE public.subscriptions ADD CONSTRAINT no_ftp CHECK (callback_url NOT LIKE 'ftp%')", []string{"table constraint no_ftp on public.subscriptions"}},
	{"CREATE FUNCTION app.noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER note AFTER INSERT ON public.events FOR EACH ROW EXECUTE FUNCTION app.noted()",
		[]string{"trigger note on public.events"}},
	{"CREATE TABLE app.guarded (); CREATE TRIGGER guard BEFORE DELETE ON app.guarded FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change()", []string{"trigger guard on app.guarded"}},
	{"CREATE POLICY theirs ON public.events", []string{"policy theirs on public.events"}},
	{"CREATE STATISTICS app.stats ON event_type, created_at FROM public.events", []string{"statistics object app.stats"}},
	{"CREATE PUBLICATION feed FOR TABLE public.events", []string{"publication relation public.events in publication feed"}},
	{"CREATE OPERATOR app.@@@ (RIGHTARG = text, FUNCTION = public.fn_cfg_bool)", []string{"operator app.@@@"}},
	{"CREATE AGGREGATE app.last_class(public.event_class) (SFUNC = app.keep, STYPE = public.event_class)", []string{"aggregate app.last_class(public.event_class)", "function app.keep"}},
	{"CREATE CAST (public.event_class AS text) WITH FUNCTION app.as_text(public.event_class)", []string{"cast (public.event_class AS pg_catalog.text)", "function app.as_text"}},
}

// everything is the catalogue of the schemas public and app, as far as migrate could change it.
const everything = `SELECT string_agg(i.type || ' ' || i.identity, E'\n' ORDER BY i.type COLLATE "C", i.identity COLLATE "C") || E'\n' || (SELECT string_agg(a::text, ',' ORDER BY a::text)
		FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = 'public')
	FROM (SELECT DISTINCT d.classid, d.objid FROM pg_depend d UNION SELECT 'pg_class'::regclass, c.oid FROM pg_class c WHERE c.relnamespace IN ('public'::regnamespace, to_regnamespace('app'))) d
	CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) i WHERE i.identity !~ 'pg_toast' AND i.identity !~ 'RI_ConstraintTrigger'`

// migrate down names every object of other owners that depends on qtop's objects, and changes
// nothing. Once those objects are dropped, migrate down leaves the database as it was before
// migrate up.
func TestDownNamesWhatIsForeign(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	conn := db.Conn(t, "")
	c := &core{t: t, db: db, root: db.Pool(t, "")}
	bare := get[string](c, everything)
	require.NoError(t, schema.Up(t.Context(), db.DSN(""), nil))
	c.exec("CREATE SCHEMA app")
	c.exec("CREATE FUNCTION app.keep(public.event_class, public.event_class) RETURNS public.event_class LANGUAGE sql AS 'SELECT $1'; " +
		"CREATE FUNCTION app.as_text(public.event_class) RETURNS text LANGUAGE sql AS 'SELECT 1'")
	for _, o := range foreignObjects {
		_, err := conn.Exec(t.Context(), o.sql)
		require.NoError(t, err, o.sql)
	}
	before := get[string](c, everything)
	for _, o := range []schema.DownOptions{{}, {Discard: true}, {DryRun: true, Discard: true}} {
		var said steps
		err := schema.Down(t.Context(), db.DSN(""), o, said.add)
		if !o.DryRun {
			require.Equal(t, queue.KindFailed, queue.KindOf(err))
			require.ErrorContains(t, err, "on what migrate down removes")
			require.NotContains(t, err.Error(), "\n")
		}
		var names []string
		for _, f := range foreignObjects {
			names = append(names, f.says...)
		}
		for _, line := range said.lines {
			if what, ok := strings.CutPrefix(line, "in the way: "); ok {
				at := slices.IndexFunc(names, func(name string) bool { return strings.Contains(what, name) })
				require.GreaterOrEqual(t, at, 0, "this is ours: %s", what)
				names = slices.Delete(names, at, at+1)
			}
		}
		require.Empty(t, names, "all are listed")
		require.Equal(t, before, get[string](c, everything))
	}
	c.exec("DROP SCHEMA app CASCADE; DROP INDEX public.mine, public.whole; ALTER TABLE public.subscriptions DROP COLUMN team, DROP CONSTRAINT no_ftp; " +
		"DROP POLICY theirs ON public.events; DROP PUBLICATION feed; ALTER TABLE public.event_outbox ATTACH PARTITION public.event_outbox_default DEFAULT")
	require.NotContains(t, get[string](c, everything), " app.")
	require.NoError(t, schema.Down(t.Context(), db.DSN(""), schema.DownOptions{}, nil))
	require.Equal(t, bare, get[string](c, everything), "with the rights on schema public")
}

// migrate up names every existing object of any kind that has a name which qtop needs, and changes
// nothing.
func TestUpNamesWhatIsForeign(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	c := &core{t: t, db: db, root: db.Pool(t, "")}
	c.exec("CREATE TABLE public.events (id int); CREATE VIEW public.v_queue_alert AS SELECT 1 AS x; CREATE SEQUENCE public.subscriptions")
	c.exec("CREATE MATERIALIZED VIEW public.job_queue AS SELECT 1; CREATE TYPE public.job_history AS (i int); CREATE TYPE public.event_read AS ENUM ('x')")
	c.exec("CREATE DOMAIN public.dot_config AS text; CREATE TABLE public.other (i int); CREATE INDEX ix_job_subscription_claim ON public.other (i)")
	c.exec("CREATE FUNCTION public.fn_cfg_bool(text) RETURNS boolean LANGUAGE sql AS 'SELECT true'; CREATE PROCEDURE public.fn_queue_clone_of() LANGUAGE sql AS ''")
	c.exec("CREATE FUNCTION public.fn_cfg_int(text) RETURNS int LANGUAGE sql AS 'SELECT 1'") // other argument types: no conflict with a function of qtop
	c.exec("CREATE TABLE public.event_outbox_2026_11 (i int); CREATE TABLE public.job_history_default (i int)")
	before := get[string](c, everything)
	err := schema.Up(t.Context(), db.DSN(""), nil)
	require.Equal(t, queue.KindFailed, queue.KindOf(err))
	require.NotContains(t, err.Error(), "\n")
	for _, name := range []string{
		"table events", "view v_queue_alert", "sequence subscriptions", "materialized view job_queue", "type job_history", "type event_read", "type dot_config",
		"index ix_job_subscription_claim", "function fn_cfg_bool(text)", "procedure fn_queue_clone_of()", "table event_outbox_2026_11", "table job_history_default",
	} {
		require.Contains(t, err.Error(), name)
	}
	require.NotContains(t, err.Error(), "fn_cfg_int")
	require.Equal(t, before, get[string](c, everything))
}

// A dump that was restored with --no-owner has every object of qtop, and queue_owner owns none.
func TestUpNamesARestoreWithoutOwners(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := &core{t: t, db: db, root: db.Pool(t, "")}
	c.exec("REASSIGN OWNED BY queue_owner TO postgres")
	before := get[string](c, everything)
	err := schema.Up(t.Context(), db.DSN(""), nil)
	require.Equal(t, queue.KindFailed, queue.KindOf(err))
	require.ErrorContains(t, err, "qtop's functions here do not belong to queue_owner, as after pg_restore --no-owner: ")
	require.ErrorContains(t, err, "restore the dump into an empty database without --no-owner")
	require.NotContains(t, err.Error(), "rename or move")
	require.Less(t, len(err.Error()), 2000)
	require.Equal(t, before, get[string](c, everything))
}

// Settings that change how the server parses or prints text do not change what migrate does.
func TestMigrateUnderOddSettings(t *testing.T) {
	t.Parallel()
	plain, odd := pgtest.New(t), pgtest.Empty(t)
	c := &core{t: t, db: odd, root: odd.Pool(t, "")}
	for _, set := range []string{
		"standard_conforming_strings = off", "quote_all_identifiers = on", "transform_null_equals = on", "array_nulls = off", "default_transaction_isolation = serializable",
		"default_transaction_deferrable = on", "xmloption = document", "bytea_output = escape", "extra_float_digits = -15", "datestyle = 'SQL, DMY'", "intervalstyle = sql_standard",
		"timezone = 'Asia/Kathmandu'", "check_function_bodies = on", "row_security = off", "lock_timeout = 1", "statement_timeout = '2s'", "search_path = app, public",
		"backslash_quote = off", "plpgsql.variable_conflict = use_column", "plpgsql.extra_errors = 'all'", "client_encoding = 'LATIN1'", "default_toast_compression = 'pglz'",
	} {
		c.exec("ALTER DATABASE " + pgx.Identifier{odd.Name}.Sanitize() + " SET " + set)
	}
	c.root.Reset()
	require.NoError(t, schema.Up(t.Context(), odd.DSN(""), nil))
	conn, err := pgsession.Connect(t.Context(), odd.DSN(""))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	differs, err := schema.Differences(t.Context(), conn)
	require.NoError(t, err)
	require.Empty(t, differs)
	var said steps
	require.NoError(t, schema.Up(t.Context(), odd.DSN(""), said.add))
	require.Contains(t, fmt.Sprint(said.lines), "already")
	c.exec("DO $$ DECLARE r record; BEGIN FOR r IN SELECT 1 LOOP EXECUTE format('ALTER DATABASE %I RESET ALL', current_database()); END LOOP; END $$")
	c.root.Reset()
	require.Equal(t, get[string](&core{t: t, db: plain, root: plain.Pool(t, "")}, hashes), get[string](c, hashes), "the catalogue is as on any server")
	require.NoError(t, schema.Down(t.Context(), odd.DSN(""), schema.DownOptions{}, nil))
}

// hashes are the objects that the installation recorded, with their hashes.
const hashes = `SELECT string_agg(o::text, E'\n' ORDER BY o.kind COLLATE "C", o.name COLLATE "C") FROM public.qtop_schema_object o`

// If a step of migrate down fails, the database is unchanged.
func TestDownThatFails(t *testing.T) {
	c := newCore(t)
	c.exec("CREATE SCHEMA app; CREATE TABLE app.log (what text)")
	before := get[string](c, everything)
	// An event trigger depends on no object of qtop, so migrate down does not name it. This one
	// refuses when the last of the tables is dropped; only a superuser can make one.
	c.exec(`CREATE FUNCTION app.kept() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
		IF EXISTS (SELECT FROM pg_event_trigger_dropped_objects() WHERE object_identity = 'public.dot_config') THEN RAISE 'kept'; END IF; END $$;
		CREATE EVENT TRIGGER kept ON sql_drop EXECUTE FUNCTION app.kept()`)
	err := schema.Down(t.Context(), c.db.DSN(""), schema.DownOptions{Discard: true}, nil)
	require.ErrorContains(t, err, "kept")
	c.exec("DROP EVENT TRIGGER kept; DROP FUNCTION app.kept()")
	require.Equal(t, before, get[string](c, everything))
	require.NoError(t, schema.Down(t.Context(), c.db.DSN(""), schema.DownOptions{Discard: true}, nil))
}

// A migrate down that meets a table that somebody holds says who holds it and what to do.
func TestDownNamesWhoHoldsATable(t *testing.T) {
	c := newCore(t)
	before := get[string](c, everything)
	tx := c.begin(c.root)
	var pid int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM public.dot_config LIMIT 1").Scan(&pid))
	err := schema.Down(t.Context(), c.db.DSN(""), schema.DownOptions{Discard: true, LockWait: 8 * time.Second}, nil)
	require.ErrorContains(t, err, fmt.Sprintf("gave up after 8s: public.dot_config is held by pid %d", pid))
	require.ErrorContains(t, err, "nothing was changed; end that transaction")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, before, get[string](c, everything))
}

// migrate down names what operators configured, and needs --discard to drop it.
func TestDownNamesWhatIsConfigured(t *testing.T) {
	c := newCore(t)
	var said steps
	require.NoError(t, schema.Down(t.Context(), c.db.DSN(""), schema.DownOptions{DryRun: true}, said.add))
	require.NotContains(t, fmt.Sprint(said.lines), "configuration")
	for sql, says := range map[string]string{
		"UPDATE public.dot_config SET value = '42' WHERE key = 'retention.jobs_days'":                                                                                                                          "1 flag that was changed: retention.jobs_days",
		"INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')":                                                                                                                       "1 event type: iu/made",
		"INSERT INTO public.event_subscription (recipient_ref, event_domain) VALUES ('user:ann', 'iu')":                                                                                                        "1 event subscription: ",
		"INSERT INTO public.subscriptions (event_type, callback_url) VALUES ('made', 'https://one.example/')":                                                                                                  "1 webhook subscription: ",
		"INSERT INTO public.executor_producer VALUES ('DOT', 'queue_viewer')":                                                                                                                                  "1 producer of executor kinds: DOT (queue_viewer)",
		"UPDATE public.iu_outbound_route SET enabled = false WHERE event_domain = 'system'":                                                                                                                    "1 event route: system",
		"INSERT INTO public.job_subscription (executor_id, executor_kind, registered_by) VALUES ('mine', 'DOT', 'ann')":                                                                                        "1 job subscription: ",
		"INSERT INTO public.consumer_registry (consumer_id, event_domain, event_type, job_kind, executor, registered_by, updated_by) VALUES ('c1', 'system', 'queue_worker_silent', 'k', 'DOT', 'ann', 'ann')": "1 consumer: c1",
	} {
		tx := c.begin(c.root)
		_, err := tx.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
		require.NoError(t, tx.Commit(t.Context()))
		err = schema.Down(t.Context(), c.db.DSN(""), schema.DownOptions{}, nil)
		require.ErrorContains(t, err, says, sql)
		require.ErrorContains(t, err, "--discard")
	}
	c.exec("CREATE TABLE public.other_rows AS SELECT 1 AS i; ALTER TABLE public.other_rows OWNER TO queue_owner")
	asked := errAsked{}
	err := schema.Down(t.Context(), c.db.DSN(""), schema.DownOptions{Discard: true, Confirm: func(_ context.Context, m schema.Removal) error {
		require.Contains(t, fmt.Sprint(m.Lines()), "would remove configuration: 1 consumer: c1")
		require.Contains(t, fmt.Sprint(m.Lines()), "subscriptions 1")
		require.NotContains(t, fmt.Sprint(m.Lines()), "other_rows", "which stays")
		return asked
	}}, nil)
	require.ErrorIs(t, err, asked)
	require.NotNil(t, get[*string](c, "SELECT to_regclass('public.events')::text"), "who does not confirm removes nothing")
}

type errAsked struct{}

func (errAsked) Error() string { return "asked" }
