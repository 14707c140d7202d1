package schema_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// later is a copy of the files of this release, to which tests make changes as a later release
// would have them.
type later struct {
	t     *testing.T
	files fstest.MapFS
}

func newLater(t *testing.T) *later {
	t.Helper()
	src, out := os.DirFS("."), fstest.MapFS{}
	for _, pattern := range []string{"migrations/*.sql", "code/*.sql", "moves/*.sql", "seeds.sql", "release.txt", "objects.txt", "tables.txt", "rows.txt"} {
		names, err := fs.Glob(src, pattern)
		require.NoError(t, err)
		for _, name := range names {
			b, err := fs.ReadFile(src, name)
			require.NoError(t, err)
			out[name] = &fstest.MapFile{Data: b}
		}
	}
	return &later{t, out}
}

func (l *later) replace(file, old, text string) *later {
	l.t.Helper()
	have := string(l.files[file].Data)
	require.Contains(l.t, have, old, file)
	return l.write(file, strings.Replace(have, old, text, 1))
}

// cut removes the text that matches pattern from a file.
func (l *later) cut(file, pattern string) *later {
	l.t.Helper()
	have := string(l.files[file].Data)
	re := regexp.MustCompile(pattern)
	require.Regexp(l.t, re, have, file)
	return l.write(file, re.ReplaceAllString(have, ""))
}

func (l *later) write(file, text string) *later {
	l.files[file] = &fstest.MapFile{Data: []byte(text)}
	return l
}

func (l *later) add(file, text string) *later {
	if at := l.files[file]; at != nil {
		text = string(at.Data) + "\n" + text
	}
	return l.write(file, text)
}

// release raises the code number and returns the release.
func (l *later) release() *schema.Release {
	l.t.Helper()
	cur := schema.Current().Code
	l.replace("release.txt", fmt.Sprintf("code %d ", cur), fmt.Sprintf("code %d ", cur+1))
	r, err := schema.Load(l.files)
	require.NoError(l.t, err)
	return r
}

// lines is a progress function whose lines may be read while others are added.
type lines struct {
	mu   sync.Mutex
	said []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, line)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, "\n")
}

func up(t *testing.T, db *pgtest.DB, r *schema.Release) string {
	t.Helper()
	var said lines
	require.NoError(t, r.Up(t.Context(), db.DSN(""), schema.UpOptions{Progress: said.add}), "%s", &said)
	return said.String()
}

// stable returns the catalogue without the partitions, whose names depend on the day on which they
// were made.
func stable(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	var all string
	require.NoError(t, conn.QueryRow(t.Context(), catalogue).Scan(&all))
	var out []string
	leaf := regexp.MustCompile(`_20\d\d_\d\d`)
	for line := range strings.SplitSeq(all, "\n") {
		if !leaf.MatchString(line) && !strings.HasPrefix(line, "flag ") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// triggersOf returns each trigger with its oid and xmin, which change when the trigger is created
// again.
func triggersOf(t *testing.T, conn *pgx.Conn) map[string]string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT format('%s on %s', tgname, tgrelid::regclass), format('%s %s', oid, xmin) FROM pg_trigger WHERE NOT tgisinternal AND tgparentid = 0`)
	require.NoError(t, err)
	out := map[string]string{}
	var name, version string
	_, err = pgx.ForEachRow(rows, []any{&name, &version}, func() error {
		out[name] = version
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(out), 50)
	return out
}

// withWorkers returns the checksums of all tables, without the rows of tick workers that the
// upgrade added.
func withWorkers(t *testing.T, conn *pgx.Conn, workers []string, columns map[string][]string) map[string]string {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	for _, rows := range []string{
		"public.queue_heartbeat x WHERE x.tick_worker AND x.executor_id", "public.dot_iu_runtime_lease x WHERE x.lease_name", "public.queue_tick_worker x WHERE x.worker_name",
	} {
		_, err := tx.Exec(t.Context(), "DELETE FROM "+rows+" <> ALL ($1::text[])", workers)
		require.NoError(t, err)
	}
	return pgtest.RowSums(t, conn, columns)
}

// A database of the release before code numbers, with rows in every table, has the same schema as a
// fresh installation after the upgrade, and keeps every row.
func TestUpgradeOfAReleasedSchema(t *testing.T) {
	t.Parallel()
	old, fresh := pgtest.Released(t), pgtest.Encoded(t, "UTF8") // without the doubles of the hostile pass, since their dumps are compared
	up(t, fresh, schema.Current())
	conn := old.Conn(t, "")
	columns := pgtest.Columns(t, conn)
	before := pgtest.RowSums(t, conn, columns)
	for table, sum := range before {
		require.NotEmpty(t, sum, "the fixture has rows in every table, but for %s", table)
	}
	require.Greater(t, len(before), 50)
	triggers := triggersOf(t, conn)
	var workers []string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT array_agg(worker_name) FROM public.queue_tick_worker").Scan(&workers))
	said := up(t, old, schema.Current())
	require.Contains(t, said, "up 024 ")
	after := triggersOf(t, conn)
	for name, version := range triggers {
		if strings.HasPrefix(name, "trg_saga_guard on ") {
			continue // changed: a saga may wait without having spent an attempt
		}
		if strings.HasPrefix(name, "trg_dot_config_switched_on on ") {
			continue // changed: heartbeat rows follow every change of a flag
		}
		if stamp := strings.HasPrefix(name, "trg_events_stamp ") || strings.HasPrefix(name, "trg_event_outbox_admit ") || strings.HasPrefix(name, "trg_queue_operator_action_"); stamp {
			version, _, _ = strings.Cut(version, " ") // altered, not created again: it now fires ALWAYS
			after[name], _, _ = strings.Cut(after[name], " ")
		}
		require.Equal(t, version, after[name], "%s is as it should be and is left alone", name)
	}
	require.Equal(t, before, withWorkers(t, conn, workers, columns), "no row was lost or changed")
	require.Equal(t, stable(t, fresh.Conn(t, "")), stable(t, conn))
	require.Empty(t, differences(t, conn))
	require.Contains(t, up(t, old, schema.Current()), "already")
	if dump, err := exec.LookPath("pg_dump"); err == nil && old.Server != nil {
		require.Equal(t, dumped(t, dump, fresh), dumped(t, dump, old))
	}
	require.NoError(t, schema.Down(t.Context(), old.DSN(""), schema.DownOptions{Discard: true}, nil))
	var left int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_class WHERE `+publicRelations+`) +
		(SELECT count(*) FROM pg_proc WHERE `+publicFunctions+`)`).Scan(&left))
	require.Zero(t, left)
}

// dumped returns the output of pg_dump --schema-only without comments, restrict lines and
// partitions.
func dumped(t *testing.T, program string, db *pgtest.DB) string {
	t.Helper()
	b, err := exec.CommandContext(t.Context(), program, "--schema-only", "--dbname", db.DSN("")).CombinedOutput()
	require.NoError(t, err, "%s", b)
	var out []string
	for statement := range strings.SplitSeq(string(b), ";\n") {
		if !regexp.MustCompile(`_20\d\d_\d\d`).MatchString(statement) {
			statement = regexp.MustCompile(`(?m)^(--|\\).*$`).ReplaceAllString(statement, "")
			out = append(out, strings.TrimSpace(statement))
		}
	}
	return strings.Join(out, ";\n")
}

// This program can also remove the schema of the release before code numbers.
func TestDownOfAReleasedSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.Released(t)
	require.ErrorContains(t, schema.Down(t.Context(), db.DSN(""), schema.DownOptions{}, nil), "would lose")
	require.NoError(t, schema.Down(t.Context(), db.DSN(""), schema.DownOptions{Discard: true}, nil))
	var left int
	require.NoError(t, db.Conn(t, "").QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_class WHERE `+publicRelations+`) +
		(SELECT count(*) FROM pg_proc WHERE `+publicFunctions+`)`).Scan(&left))
	require.Zero(t, left)
}

// The upgrade locks no table that producers write to, so neither waits for the other. It does wait
// for short transactions: those of ticks, since the tables of webhooks change, and those that use
// queue_heartbeat, queue_host and job_subscription, since these get a trigger.
func TestUpgradeBehindOpenWriters(t *testing.T) {
	t.Parallel()
	db := pgtest.Released(t)
	writer := db.Conn(t, "")
	tx, err := writer.Begin(t.Context())
	require.NoError(t, err)
	for _, sql := range []string{
		"SELECT public.fn_job_enqueue('kg.index', 'kg', 'Agent')",
		"INSERT INTO public.events (event_type, payload) VALUES ('order.paid', '{}')",
		"SELECT public.fn_iu_emit_event('kg', 'made', 'birth', 'delayed', 'info', 'unit', 'open')",
		"SELECT public.fn_iu_save('doc/3', 'body', 'ann', 'book-3', NULL)",
	} {
		_, err := tx.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	r := schema.Current()
	require.NoError(t, r.Up(t.Context(), db.DSN(""), schema.UpOptions{LockWait: time.Nanosecond}))
	require.NoError(t, tx.Commit(t.Context()))
}

// Cursors continue from their positions in the previous release. Committed events that waited behind
// another, open transaction are routed right after the upgrade, while that transaction is still
// open. No event is skipped or routed twice, even if a router of the previous release commits after
// the upgrade.
func TestUpgradeOfCursors(t *testing.T) {
	t.Parallel()
	db := pgtest.Released(t)
	conn, writer, router := db.Conn(t, ""), db.Conn(t, ""), db.Conn(t, "")
	run := func(c *pgx.Conn, sql string) {
		t.Helper()
		_, err := c.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	ask := func(sql string) (out string) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&out))
		return out
	}
	const (
		write = `INSERT INTO public.events (event_type, payload) VALUES ('order.paid', '{}'), ('order.paid', '{}'); SELECT public.fn_iu_emit_event('kg', 'made', 'birth',
			'delayed', 'info', 'unit', 'cursor') FROM generate_series(1, 2)`
		seen = `SELECT (SELECT count(*) - max(o.events_seen) FROM public.events, public.router_offsets o) || ' '
			|| (SELECT count(*) - max(c.events_seen) FROM public.event_outbox e JOIN public.iu_route_worker_cursor c USING (event_domain) WHERE e.event_domain = 'kg')`
		route = "SELECT public.fn_webhook_router_run(%[1]d), public.fn_iu_route_worker_run('iu_outbound_default', %[1]d)"
	)
	eventually(t, "all is routed", func() bool {
		run(conn, fmt.Sprintf(route, 100))
		return ask(seen) == "0 0"
	})
	run(conn, write)
	run(conn, write)
	eventually(t, "some are routed", func() bool {
		run(conn, fmt.Sprintf(route, 1)) // stops between the events of one transaction
		return !strings.Contains(" "+ask(seen)+" ", " 4 ")
	})
	run(router, "BEGIN; SELECT public.fn_iu_route_worker_run('iu_outbound_default', 1)")
	run(writer, "BEGIN; "+write)
	run(conn, write)
	up(t, db, schema.Current())
	run(conn, fmt.Sprintf(route, 100))
	run(router, "COMMIT")
	run(conn, fmt.Sprintf(route, 100))
	require.Equal(t, "0 0", ask(seen), "the open transaction delays its own events alone")
	run(writer, "COMMIT")
	require.Equal(t, "2 2", ask(seen))
	for range 4 {
		run(conn, fmt.Sprintf(route, 1))
	}
	require.Equal(t, "0 0", ask(seen))
	require.Equal(t, "0", ask(`SELECT (SELECT count(*) FROM public.event_outbox e WHERE NOT EXISTS (SELECT FROM public.iu_route_attempt a WHERE a.event_id = e.id)
		AND NOT EXISTS (SELECT FROM public.iu_route_dead_letter d WHERE d.event_id = e.id) AND e.event_domain = 'kg')::text`))
	require.Equal(t, "0", ask(`SELECT count(*)::text FROM public.events e JOIN public.subscriptions s ON s.event_type = e.event_type AND s.active AND s.verified AND s.created_at <= e.created_at
		WHERE NOT EXISTS (SELECT FROM public.webhook_delivery_sagas g WHERE g.event_id = e.id AND g.subscription_id = s.id)`))
}

// A flag that an operator set in the previous release does not follow its default; one that is set for
// a while, and will revert to its default, does.
func TestUpgradeOfFlags(t *testing.T) {
	t.Parallel()
	db := pgtest.Released(t)
	conn := db.Conn(t, "")
	const keys = "'{webhook.max_attempts,webhook.lease_seconds,webhook.timeout_seconds}'::text[]"
	for _, sql := range []string{
		"DELETE FROM public.dot_config WHERE key = ANY (" + keys + ")",
		"SET session_replication_role = replica",
		"INSERT INTO public.dot_config (key, value, updated_by) SELECT r.key, r.default_value, 'migration' FROM public.dot_config_rule r WHERE r.key = ANY (" + keys + ")",
		"RESET session_replication_role",
		"SELECT public.fn_dot_config_set('webhook.max_attempts', '9', 'ann', 'r')",
		"SELECT public.fn_dot_config_set('webhook.lease_seconds', '90', 'ann', 'r', now() + interval '1 hour')",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	up(t, db, schema.Current())
	var follows []string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT array_agg(key ORDER BY key) FROM public.dot_config_follows WHERE key = ANY ("+keys+")").Scan(&follows))
	require.Equal(t, []string{"webhook.lease_seconds"}, follows)
}

// Only an edited function is installed again; nothing else is touched.
func TestUpgradeOfOneFunction(t *testing.T) {
	c := newCore(t)
	conn := c.db.Conn(t, "")
	others := `SELECT md5(string_agg(concat(p.oid, p.xmin), ',' ORDER BY p.oid)) FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
		AND p.proname <> 'fn_queue_severity' UNION ALL SELECT md5(string_agg(concat(t.oid, t.xmin), ',' ORDER BY t.oid)) FROM pg_trigger t
		UNION ALL SELECT md5(string_agg(concat(c.oid, c.xmin), ',' ORDER BY c.oid)) FROM pg_class c WHERE c.relkind = 'v' AND c.relnamespace = 'public'::regnamespace`
	before := get[string](c, "SELECT string_agg(md5, ' ') FROM ("+others+") x")
	require.Equal(t, "warning", get[string](c, "SELECT public.fn_queue_severity(600, 100)"))
	r := newLater(t).replace("code/alerts.sql", "p_cadence_seconds < 10 THEN", "p_cadence_seconds < 5 THEN").release()
	said := up(t, c.db, r)
	require.Contains(t, said, "function fn_queue_severity")
	require.NotContains(t, said, ";", "nothing else")
	require.Equal(t, "critical", get[string](c, "SELECT public.fn_queue_severity(600, 100)"))
	require.Equal(t, before, get[string](c, "SELECT string_agg(md5, ' ') FROM ("+others+") x"))
	st, err := r.Status(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, []any{r.Code, r.Hash}, []any{st.InstalledCode, st.InstalledHash})

	err = schema.Up(t.Context(), c.db.DSN(""), nil)
	require.ErrorContains(t, err, fmt.Sprintf("code %d is installed, this qtop carries the older code %d", r.Code, schema.Current().Code))
	require.NotContains(t, err.Error(), "\n")
	require.Error(t, schema.Down(t.Context(), c.db.DSN(""), schema.DownOptions{Discard: true}, nil), "nor does an older qtop take it away")
}

// A changed trigger needs a lock on its table. The upgrade names the session that holds the table,
// lets other sessions use it between its attempts, and changes the trigger as soon as the table is
// free.
func TestUpgradeWaitsForATable(t *testing.T) {
	c := newCore(t)
	r := newLater(t).replace("code/job_tables.sql", "trg_job_queue_born BEFORE INSERT ON public.job_queue FOR EACH ROW\n  WHEN (NEW.status <> 'queued')",
		"trg_job_queue_born BEFORE INSERT ON public.job_queue FOR EACH ROW\n  WHEN (NEW.status <> 'queued' OR NEW.attempts < 0)").
		replace("code/alerts.sql", "p_cadence_seconds < 10 THEN", "p_cadence_seconds < 5 THEN").release()
	writer := c.db.Conn(t, "")
	tx, err := writer.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SET LOCAL application_name = 'nightly import'; SELECT public.fn_job_enqueue('k', 'kg', 'Agent')")
	require.NoError(t, err)

	// Without lock_timeout the upgrade would wait for the writer for ever.
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = r.Up(limited, c.db.DSN(""), schema.UpOptions{LockWait: time.Nanosecond})
	require.ErrorContains(t, err, "job_queue is held by pid ")
	require.ErrorContains(t, err, "nightly import")
	require.ErrorContains(t, err, "nothing was changed")
	require.Equal(t, "warning", get[string](c, "SELECT public.fn_queue_severity(600, 100)"), "not even what could be changed")

	var said lines
	done := make(chan error, 1)
	go func() { done <- r.Up(limited, c.db.DSN(""), schema.UpOptions{Progress: said.add}) }()
	eventually(t, "the holder is named", func() bool { return strings.Contains(said.String(), "job_queue is held by pid ") })
	c.exec("SELECT public.fn_job_enqueue('k', 'kg', 'Agent')") // gets the table between two attempts of the upgrade
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-done)
	require.Contains(t, said.String(), "trigger trg_job_queue_born on job_queue")
	require.Equal(t, "critical", get[string](c, "SELECT public.fn_queue_severity(600, 100)"))
	require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.job_queue"))
}

// A function with a new argument replaces the old one, even if a view depends on it; there are
// never two.
func TestUpgradeOfASignature(t *testing.T) {
	c := newCore(t)
	r := newLater(t).
		replace("code/job_subscriptions.sql", "-- ", "-- A view on a function that changes its arguments.\nCREATE OR REPLACE VIEW public.v_test_words AS SELECT public.fn_words('{a,b}', 'or') AS words;\n"+
			"GRANT SELECT ON public.v_test_words TO :\"queue_viewer\";\n\n-- ").release()
	up(t, c.db, r)
	l := newLater(t)
	l.files["code/job_subscriptions.sql"] = &fstest.MapFile{Data: []byte("CREATE OR REPLACE VIEW public.v_test_words AS SELECT public.fn_words('{a,b}', 'or') AS words;\n" +
		"GRANT SELECT ON public.v_test_words TO :\"queue_viewer\";\n" + string(l.files["code/job_subscriptions.sql"].Data))}
	l.replace("code/audit.sql", "public.fn_words(p_list text[], p_conjunction text)", "public.fn_words(p_list text[], p_conjunction text, p_last text DEFAULT '!')").
		replace("code/audit.sql", `' \1');`, `' \1' || p_last);`)
	r = l.release()
	said := up(t, c.db, r)
	require.Contains(t, said, "function fn_words; view v_test_words")
	require.Equal(t, "a or b!", get[string](c, "SELECT words FROM public.v_test_words"))
	require.Equal(t, 1, get[int](c, "SELECT count(*) FROM pg_proc WHERE proname = 'fn_words'"))
	require.True(t, get[bool](c, "SELECT has_table_privilege('queue_viewer', 'public.v_test_words', 'SELECT')"))
	require.False(t, get[bool](c, "SELECT has_function_privilege('queue_viewer', 'public.fn_words(text[],text,text)', 'EXECUTE')"))

	// An object of another owner that depends on the function is not dropped: the upgrade is
	// refused.
	c.exec("CREATE SCHEMA app; CREATE VIEW app.report AS SELECT words FROM public.v_test_words")
	l.replace("code/audit.sql", "p_last text DEFAULT '!'", "p_last text DEFAULT '!', p_more text DEFAULT ''")
	r, err := schema.Load(l.files)
	require.NoError(t, err)
	err = r.Up(t.Context(), c.db.DSN(""), schema.UpOptions{})
	require.Equal(t, queue.KindFailed, queue.KindOf(err))
	require.ErrorContains(t, err, "view app.report")
	require.Equal(t, "a or b!", get[string](c, "SELECT words FROM app.report"))
}

// If the columns of a view change, the views and functions that use it are created again.
func TestUpgradeOfAView(t *testing.T) {
	c := newCore(t)
	l := newLater(t).replace("code/executors.sql", "-- ", "CREATE OR REPLACE VIEW public.v_test AS SELECT 1 AS a, 2 AS b;\n"+
		"CREATE OR REPLACE VIEW public.v_test_of AS SELECT a FROM public.v_test;\n"+
		"CREATE OR REPLACE FUNCTION public.fn_test() RETURNS SETOF public.v_test\nLANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT * FROM public.v_test $$;\n-- ")
	up(t, c.db, l.release())
	l.replace("code/executors.sql", "SELECT 1 AS a, 2 AS b", "SELECT 'x'::text AS a")
	r, err := schema.Load(l.files)
	require.NoError(t, err)
	up(t, c.db, r)
	require.Equal(t, "x x", get[string](c, "SELECT o.a || ' ' || t.a FROM public.v_test_of o, public.fn_test() t"))
	l.cut("code/executors.sql", `(?s)CREATE OR REPLACE VIEW public.v_test AS.*?\$\$;\n`)
	r, err = schema.Load(l.files)
	require.NoError(t, err)
	said := up(t, c.db, r)
	require.Contains(t, said, "without view v_test; without view v_test_of; without function fn_test")
	require.Zero(t, get[int](c, "SELECT count(*) FROM pg_class WHERE relname LIKE 'v_test%'"))
	conn := c.db.Conn(t, "")
	differs, err := r.Differences(t.Context(), conn)
	require.NoError(t, err)
	require.Empty(t, differs)
}

// A trigger, a right or a comment that the release no longer declares is removed.
func TestUpgradeDropsWhatIsGone(t *testing.T) {
	c := newCore(t)
	require.True(t, get[bool](c, "SELECT has_table_privilege('queue_viewer', 'public.queue_mark', 'SELECT')"))
	r := newLater(t).
		cut("code/samples.sql", `(?s)CREATE OR REPLACE TRIGGER trg_queue_mark_no_truncate.*?;\n`).
		cut("code/samples.sql", `GRANT SELECT ON public.queue_mark TO .*;\n`).
		cut("code/samples.sql", `(?s)COMMENT ON TABLE public.queue_mark IS.*?';\n`).release()
	said := up(t, c.db, r)
	require.Contains(t, said, "without trigger trg_queue_mark_no_truncate on queue_mark")
	require.False(t, get[bool](c, "SELECT has_table_privilege('queue_viewer', 'public.queue_mark', 'SELECT')"))
	require.Zero(t, get[int](c, "SELECT count(*) FROM pg_trigger WHERE tgname = 'trg_queue_mark_no_truncate'"))
	require.True(t, get[bool](c, "SELECT obj_description('public.queue_mark'::regclass) IS NULL"))
}

// Changes that somebody made by hand are listed, and the next migrate up repairs them.
func TestUpgradeRepairsWhatWasChangedByHand(t *testing.T) {
	c := newCore(t)
	conn := c.db.Conn(t, "")
	want := stable(t, conn)
	c.exec(`CREATE OR REPLACE FUNCTION public.fn_queue_severity(p_age_seconds double precision, p_cadence_seconds int) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT ''fine'''`)
	c.exec("ALTER FUNCTION public.fn_cfg_bool(text) SECURITY DEFINER")
	c.exec("ALTER TABLE public.job_queue DISABLE TRIGGER trg_job_queue_no_truncate")
	c.exec("DROP TRIGGER trg_events_immutable ON public.events")
	c.exec("GRANT EXECUTE ON FUNCTION public.fn_job_ack(uuid[], uuid[]) TO queue_viewer")
	c.exec("REVOKE SELECT ON public.dot_config FROM queue_viewer; GRANT UPDATE (value) ON public.dot_config TO queue_viewer")
	c.exec("COMMENT ON TABLE public.dot_config IS 'mine'")
	c.exec("CREATE OR REPLACE VIEW public.v_job_handlers AS SELECT 'x'::text AS executor_id, '{}'::text[] AS kinds")
	c.exec("DROP FUNCTION public.fn_queue_mark(text, text)")
	differs, err := schema.Differences(t.Context(), conn)
	require.NoError(t, err)
	var named []string
	for _, d := range differs {
		named = append(named, d.Object+": "+d.Why)
		require.Equal(t, d.Object != "comment TABLE dot_config", d.Harmful(), d.Object)
	}
	require.ElementsMatch(t, []string{
		"function fn_queue_severity: changed by hand", "function fn_cfg_bool: changed by hand",
		"trigger trg_job_queue_no_truncate on job_queue: changed by hand", "trigger trg_events_immutable on events: missing: dropped by hand",
		"rights FUNCTION fn_job_ack: changed by hand", "rights TABLE dot_config: changed by hand",
		"comment TABLE dot_config: changed by hand", "view v_job_handlers: changed by hand", "function fn_queue_mark: missing: dropped by hand",
	}, named)
	up(t, c.db, schema.Current())
	require.Equal(t, want, stable(t, conn))
	differs, err = schema.Differences(t.Context(), conn)
	require.NoError(t, err)
	require.Empty(t, differs)
}

// A function of another owner with the same name and other arguments is not confused with qtop's
// function, and is kept.
func TestUpgradeBesideAnOverload(t *testing.T) {
	c := newCore(t)
	c.exec("CREATE FUNCTION public.fn_words(text[]) RETURNS text LANGUAGE sql AS 'SELECT ''theirs'''")
	c.exec("CREATE FUNCTION public.fn_job_ack(text) RETURNS text LANGUAGE sql AS 'SELECT ''theirs'''")
	r := newLater(t).replace("code/audit.sql", "COMMENT ON FUNCTION public.fn_words IS 'A list", "COMMENT ON FUNCTION public.fn_words IS 'Any list").
		replace("code/job_results.sql", "GRANT EXECUTE ON FUNCTION public.fn_job_ack TO ", "GRANT EXECUTE ON FUNCTION public.fn_job_ack TO :\"queue_viewer\", ").release()
	up(t, c.db, r)
	require.Equal(t, 4, get[int](c, "SELECT count(*) FROM pg_proc WHERE proname IN ('fn_words', 'fn_job_ack')"))
	require.Contains(t, get[string](c, "SELECT obj_description('public.fn_words(text[],text)'::regprocedure)"), "Any list")
	require.True(t, get[bool](c, "SELECT has_function_privilege('queue_viewer', 'public.fn_job_ack(uuid[],uuid[])', 'EXECUTE')"))
	require.NoError(t, r.Down(t.Context(), c.db.DSN(""), schema.DownOptions{Discard: true}, nil))
	require.Equal(t, 2, get[int](c, "SELECT count(*) FROM pg_proc WHERE "+publicFunctions), "theirs stay")
}
