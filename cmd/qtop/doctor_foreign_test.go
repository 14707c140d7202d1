package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// foundBy returns what one check of the doctor finds, one finding in each line, and the remedies.
func foundBy(t *testing.T, check, dsn string) (lines string, remedies []string) {
	t.Helper()
	all, _ := examined(t, dsn)
	for _, f := range all {
		if f.Check == check {
			lines += f.State + " " + f.Found.String() + "\n"
			remedies = append(remedies, f.Remedy)
		}
	}
	return lines, remedies
}

// The doctor names objects of other owners on the queue's tables or beside its
// functions, the roles that could create more of them, and the remedies. After
// the remedies it reports ok.
func TestDoctorOnForeignObjects(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.Conn(t, "")
	exec := func(sql string) {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	login, eve, fay := operator(t, db), pgtest.Login(t, db), pgtest.Login(t, db)
	doctor := func() (lines string, remedies []string) { return foundBy(t, "foreign", db.DSN(login)) }
	lines, _ := doctor()
	require.Equal(t, "ok no object of others shadows the queue's own, and nobody else may create objects in its schemas\n", lines)

	for _, sql := range []string{
		"CREATE FUNCTION public.spy() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'", "ALTER FUNCTION public.spy() OWNER TO " + eve,
		"CREATE TRIGGER spy BEFORE INSERT ON public.events FOR EACH ROW EXECUTE FUNCTION public.spy()",
		"CREATE RULE away AS ON INSERT TO public.subscriptions WHERE new.id = 0 DO INSTEAD NOTHING",
		"CREATE POLICY mine ON public.dot_config USING (true)", "ALTER TABLE public.dot_config ENABLE ROW LEVEL SECURITY",
		"CREATE TABLE public.more () INHERITS (public.queue_heartbeat)", "ALTER TABLE public.more OWNER TO " + eve,
		"CREATE TABLE public.above (mark_id bigint NOT NULL)", "ALTER TABLE public.above OWNER TO " + eve, "ALTER TABLE public.queue_mark INHERIT public.above",
		"CREATE PUBLICATION whole FOR ALL TABLES", "ALTER TABLE public.dead_letters REPLICA IDENTITY NOTHING",
		"CREATE PUBLICATION part FOR TABLE public.job_queue WHERE (status = 'queued'), public.queue_host (version)",
		"CREATE PUBLICATION fits FOR TABLE public.consumer_registry (consumer_id, enabled) WHERE (consumer_id = 'x')",
		"GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO " + eve + "; GRANT UPDATE (value) ON public.dot_config TO " + eve,
		"GRANT EXECUTE ON FUNCTION public.fn_job_ack(uuid[], uuid[]) TO " + eve,
		"CREATE FUNCTION public.fn_queue_mark(character varying, text) RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"ALTER FUNCTION public.fn_queue_mark(character varying, text) OWNER TO " + eve,
		"CREATE FUNCTION public.heard() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
		"CREATE EVENT TRIGGER heard ON ddl_command_end EXECUTE FUNCTION public.heard()",
		"GRANT CREATE ON SCHEMA public TO " + eve + ", PUBLIC",
	} {
		exec(sql)
	}
	lines, remedies := doctor()
	for _, says := range []string{
		"bad trigger spy on public.events calls public.spy() of " + eve + ":", "bad rule away on public.subscriptions rewrites statements:",
		"bad row security on public.dot_config (mine):", "bad public.more of " + eve + " inherits from public.queue_heartbeat:",
		"bad function public.fn_queue_mark(character varying,text) of " + eve + " has the name of one of ours:",
		"bad public.queue_mark inherits from public.above of " + eve + ": statements on that table",
		"bad publication whole publishes changes of public.queue_counter_recent: PostgreSQL refuses every UPDATE and DELETE of its rows, because it has no replica identity",
		"bad publication part publishes changes of public.job_queue: PostgreSQL refuses every UPDATE and DELETE of its rows, because the filter or the columns",
		"bad publication part publishes changes of public.queue_host: PostgreSQL refuses",
		"note " + eve + " has INSERT, SELECT, UPDATE on public.consumer_registry, public.dead_letter_open, public.dead_letter_requeues and ",
		"note " + eve + " has EXECUTE on public.fn_job_ack(uuid[],uuid[]) of the queue itself",
		"note event trigger heard calls public.heard() of postgres:", "note everybody may create in schema public:", "note " + eve + " may create in schema public:",
	} {
		require.Contains(t, lines, says)
	}
	for of, fails := range map[string]string{"whole": "DELETE FROM public.queue_counter_recent", "part": "UPDATE public.queue_host SET version = version"} {
		_, err := admin.Exec(t.Context(), fails)
		require.ErrorContains(t, err, "ERROR: cannot ", of)
	}
	require.NotContains(t, lines, "publication fits")
	require.Len(t, remedies, 18)
	exec("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO " + fay)
	lines, remedies = doctor()
	require.Contains(t, lines, "note "+fay+" has EXECUTE on ")
	table, _ := qtop(t, db.DSN(login), "doctor").Output()
	for _, sql := range remedies {
		require.Contains(t, string(table), sql, "not cut")
	}
	for _, sql := range remedies { // each remedy is a statement, some with a condition at the end
		exec(strings.TrimSuffix(sql, ", where it is not meant"))
	}
	exec("DROP POLICY mine ON public.dot_config")
	exec("DELETE FROM public.queue_counter_recent")
	lines, _ = doctor()
	require.Equal(t, "ok no object of others shadows the queue's own, and nobody else may create objects in its schemas\n", lines)

	exec("DO $$ BEGIN FOR i IN 1..103 LOOP EXECUTE format('CREATE EVENT TRIGGER heard_%s ON table_rewrite EXECUTE FUNCTION public.heard()', i); END LOOP; END $$")
	lines, remedies = doctor()
	require.Len(t, remedies, 101)
	require.Contains(t, lines, "note 3 more findings like these\n")
}

// The doctor names sequences that would draw ids which exist, as after a restore of some tables, with
// the statement after which inserts succeed.
func TestDoctorOnSequences(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.Conn(t, "")
	exec := func(sql string) error {
		_, err := admin.Exec(t.Context(), sql)
		return err
	}
	login := operator(t, db)
	doctor := func() (lines string, remedies []string) { return foundBy(t, "sequences", db.DSN(login)) }
	for range 3 {
		require.NoError(t, exec("INSERT INTO public.queue_mark (label, created_by) VALUES ('m', 'ann')"))
	}
	require.NoError(t, exec("INSERT INTO public.queue_metric_sample (at, metric, value) VALUES (now(), 'm', 1)"))
	require.NoError(t, exec("INSERT INTO public.events (event_type, payload) VALUES ('order', '{}')"))
	lines, _ := doctor()
	require.Equal(t, "ok each draws ids above those of its table\n", lines)

	// a sequence that has drawn, one that has not, and one that no column owns
	require.NoError(t, exec("SELECT setval('public.queue_mark_mark_id_seq', 2)"))
	require.NoError(t, exec("ALTER SEQUENCE public.events_id_seq RESTART"))
	require.NoError(t, exec("ALTER SEQUENCE public.queue_metric_sample_id RESTART"))
	require.ErrorContains(t, exec("INSERT INTO public.queue_mark (label, created_by) VALUES ('m', 'ann')"), "23505")
	require.NoError(t, exec("SELECT setval('public.queue_mark_mark_id_seq', 2)"))
	lines, remedies := doctor()
	const why = ", as after a restore of some tables or a move by logical replication: inserts fail with a duplicate key\n"
	require.Equal(t, "bad public.events_id_seq draws 1 next, and public.events has ids up to 1"+why+
		"bad public.queue_mark_mark_id_seq draws 3 next, and public.queue_mark has ids up to 3"+why+
		"bad public.queue_metric_sample_id draws 1 next, and public.queue_metric_sample has ids up to 1"+why, lines)
	for _, sql := range remedies {
		require.NoError(t, exec(sql))
	}
	require.NoError(t, exec("INSERT INTO public.queue_mark (label, created_by) VALUES ('m', 'ann')"))
	lines, _ = doctor()
	require.Equal(t, "ok each draws ids above those of its table\n", lines)
}
