package schema_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// drift is a change to the schema that somebody makes by hand (do). found is how the one line
// about the change must begin; harmless = the line is a note, not a problem.
type drift struct {
	sort, do, found string
	harmless        bool
}

var drifts = []drift{
	{"function", "CREATE OR REPLACE FUNCTION public.fn_queue_role_name(p_name text) RETURNS text LANGUAGE sql AS 'SELECT p_name'", "function fn_queue_role_name: changed by hand", false},
	{"dropped function", "DROP FUNCTION public.fn_queue_mark(text, text)", "function fn_queue_mark: missing", false},
	{"function setting", "ALTER FUNCTION public.fn_cfg_bool(text) RESET search_path", "function fn_cfg_bool: changed by hand", false},
	{"function owner", "ALTER FUNCTION public.fn_queue_mark(text, text) OWNER TO postgres", "function fn_queue_mark: belongs to postgres", false},
	{"view", "CREATE OR REPLACE VIEW public.v_job_handlers AS SELECT 'x'::text AS executor_id, '{}'::text[] AS kinds", "view v_job_handlers: changed by hand", false},
	{"view owner", "ALTER VIEW public.v_job_handlers OWNER TO postgres", "view v_job_handlers: belongs to postgres", false},
	{"trigger off", "ALTER TABLE public.job_queue DISABLE TRIGGER trg_job_queue_no_truncate", "trigger trg_job_queue_no_truncate on job_queue: changed by hand", false},
	{"trigger replica only", "ALTER TABLE public.events ENABLE REPLICA TRIGGER trg_events_immutable", "trigger trg_events_immutable on events: changed by hand", false},
	{"trigger of partitioned table off", "ALTER TABLE public.event_outbox DISABLE TRIGGER trg_event_outbox_admit", "trigger trg_event_outbox_admit on event_outbox: changed by hand", false},
	{"dropped trigger", "DROP TRIGGER trg_events_immutable ON public.events", "trigger trg_events_immutable on events: missing", false},
	{"trigger added", "CREATE TRIGGER mine BEFORE INSERT ON public.queue_mark FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change()", "trigger mine on queue_mark: is not qtop's: it calls public.fn_refuse_change()", false},
	{"trigger added to a partition", "CREATE TRIGGER mine BEFORE INSERT ON public.{leaf} FOR EACH ROW EXECUTE FUNCTION public.fn_refuse_change()", "trigger mine on {leaf}: is not qtop's", false},
	{"trigger of a partition off", "ALTER TABLE public.{leaf} DISABLE TRIGGER trg_event_outbox_admit", "trigger trg_event_outbox_admit on {leaf}: fires otherwise", false},
	{"guard of a partition dropped", "DROP TRIGGER trg_{leaf}_no_truncate ON public.{leaf}", "trigger trg_{leaf}_no_truncate on {leaf}: missing", false},
	{"guard of a partition off", "ALTER TABLE public.{leaf} DISABLE TRIGGER trg_{leaf}_no_truncate", "trigger trg_{leaf}_no_truncate on {leaf}: disabled", false},
	{"detached", "ALTER TABLE public.event_outbox DETACH PARTITION public.{leaf}", "table {leaf}: is no partition of event_outbox", false},
	{"default detached", "ALTER TABLE public.event_outbox DETACH PARTITION public.event_outbox_default", "table event_outbox_default: is no partition of event_outbox", false},
	{"grant", "GRANT UPDATE (status) ON public.job_queue TO queue_viewer", "rights TABLE job_queue: changed by hand", false},
	{"grant to all", "GRANT EXECUTE ON FUNCTION public.fn_job_ack(uuid[], uuid[]) TO PUBLIC", "rights FUNCTION fn_job_ack: changed by hand", false},
	{"revoke", "REVOKE SELECT ON public.v_queue_health FROM queue_viewer", "rights TABLE v_queue_health: changed by hand", false},
	{"revoke of the schema", "REVOKE USAGE ON SCHEMA public FROM PUBLIC, queue_viewer", "rights SCHEMA public: queue_viewer may not use it", false},
	{"creating in the schema", "REVOKE CREATE ON SCHEMA public FROM PUBLIC, queue_owner", "rights SCHEMA public: queue_owner may not create in it", false},
	{"grant on an internal table", "GRANT INSERT ON public.event_own TO event_ingest_writer", "rights TABLE event_own: changed by hand", false},
	{"grant on a default partition", "GRANT SELECT ON public.job_history_default TO PUBLIC", "rights TABLE job_history_default: changed by hand", false},
	{"grant on a partition", "GRANT SELECT ON public.{leaf} TO PUBLIC", "rights TABLE {leaf}: PUBLIC has SELECT", false},
	{"grant on a column of a partition", "GRANT UPDATE (actor_ref) ON public.{leaf} TO queue_viewer", "rights TABLE {leaf}: queue_viewer has UPDATE (actor_ref)", false},
	{"grant on a sequence", "GRANT USAGE ON SEQUENCE public.subscriptions_id_seq TO queue_viewer", "rights SEQUENCE subscriptions_id_seq: changed by hand", false},
	{"grant on the version table", "GRANT UPDATE ON public.qtop_schema_version TO PUBLIC", "rights TABLE qtop_schema_version: PUBLIC has UPDATE", false},
	{"comment", "COMMENT ON TABLE public.dot_config IS 'mine'", "comment TABLE dot_config: changed by hand", true},
	{"table owner", "ALTER TABLE public.queue_alert_ack OWNER TO postgres", "table queue_alert_ack: belongs to postgres", false},
	{"partition owner", "ALTER TABLE public.{leaf} OWNER TO postgres", "table {leaf}: belongs to postgres", false},
	{"domain owner", "ALTER DOMAIN public.job_state OWNER TO postgres", "domain job_state: belongs to postgres", false},
	{"unlogged", "ALTER TABLE public.queue_mark SET UNLOGGED", "table queue_mark: changed by hand: UNLOGGED", false},
	{"partition unlogged", "ALTER TABLE public.{leaf} SET UNLOGGED", "table {leaf}: is UNLOGGED", false},
	{"storage", "ALTER TABLE public.event_class SET (fillfactor = 100, autovacuum_enabled = off)", "storage event_class: changed by hand", true},
	{"storage added", "ALTER TABLE public.dot_config SET (autovacuum_enabled = off)", "storage dot_config: is not qtop's", true},
	{"storage gone", "ALTER TABLE public.dot_iu_runtime_lease RESET (fillfactor)", "storage dot_iu_runtime_lease: missing", true},
	{"stored plain", "ALTER TABLE public.job_dead_letter ALTER payload SET STORAGE PLAIN", "column job_dead_letter.payload: is stored PLAIN", false},
	{"partitions stored plain", "ALTER TABLE public.event_outbox ALTER safe_payload SET STORAGE PLAIN", "column event_outbox.safe_payload: is stored PLAIN", false},
	{"partition stored plain", "ALTER TABLE public.{leaf} ALTER safe_payload SET STORAGE PLAIN", "column {leaf}.safe_payload: is stored PLAIN", false},
	{"constraint of a partition", "ALTER TABLE public.{leaf} ADD CONSTRAINT mine CHECK (actor_ref > '') NOT VALID", "constraint mine on {leaf}: is not qtop's: CHECK", false},
	{"foreign key of a partition", "ALTER TABLE public.{leaf} ADD CONSTRAINT mine FOREIGN KEY (actor_ref) REFERENCES public.dot_config (key)", "constraint mine on {leaf}: is not qtop's: FOREIGN KEY", false},
	{"not null in a partition", "ALTER TABLE public.{leaf} ALTER actor_ref SET NOT NULL", "column {leaf}.actor_ref: is NOT NULL", false},
	{"unique index of a partition", "CREATE UNIQUE INDEX mine ON public.{leaf} (event_type)", "index mine on {leaf}: is not qtop's: CREATE UNIQUE INDEX", false},
	{"default dropped", "ALTER TABLE public.consumer_registry ALTER enabled DROP DEFAULT", "column consumer_registry.enabled: changed by hand", false},
	{"default changed", "ALTER TABLE public.dead_letters ALTER failed_at SET DEFAULT '2020-01-01'", "column dead_letters.failed_at: changed by hand", false},
	{"default added", "ALTER TABLE public.dead_letters ALTER final_error_code SET DEFAULT 'X'", "column dead_letters.final_error_code: changed by hand", false},
	{"nullable", "ALTER TABLE public.dead_letters ALTER final_error_code DROP NOT NULL", "column dead_letters.final_error_code: changed by hand", false},
	{"not null", "ALTER TABLE public.dead_letter_resolutions ALTER note SET NOT NULL", "column dead_letter_resolutions.note: changed by hand", false},
	{"type", "ALTER TABLE public.iu_comment ALTER created_at TYPE date", "column iu_comment.created_at: changed by hand: date", false},
	{"identity", "ALTER TABLE public.queue_mark ALTER mark_id DROP IDENTITY", "column queue_mark.mark_id: changed by hand", false},
	{"identity by default", "ALTER TABLE public.events ALTER id SET GENERATED BY DEFAULT", "column events.id: changed by hand", false},
	{"column added", "ALTER TABLE public.job_queue ADD COLUMN mine int", "column job_queue.mine: is not qtop's", true},
	{"constraint dropped", "ALTER TABLE public.job_queue DROP CONSTRAINT chk_job_queue_payload", "constraint chk_job_queue_payload on job_queue: missing", false},
	{"constraint not valid", "ALTER TABLE public.job_queue DROP CONSTRAINT chk_job_queue_payload, ADD CONSTRAINT chk_job_queue_payload CHECK (payload::public.job_payload IS NOT NULL) NOT VALID",
		"constraint chk_job_queue_payload on job_queue: changed by hand", false},
	{"constraint changed", "ALTER TABLE public.job_queue DROP CONSTRAINT chk_job_queue_payload, ADD CONSTRAINT chk_job_queue_payload CHECK (true)",
		"constraint chk_job_queue_payload on job_queue: changed by hand", false},
	{"constraint added", "ALTER TABLE public.job_queue ADD CONSTRAINT mine CHECK (priority < 5) NOT VALID", "constraint mine on job_queue: is not qtop's", false},
	{"foreign key dropped", "ALTER TABLE public.dead_letters DROP CONSTRAINT dead_letters_saga_id_fkey", "constraint dead_letters_saga_id_fkey on dead_letters: missing", false},
	{"foreign key off", `DO $$ DECLARE t name; BEGIN SELECT tgname INTO t FROM pg_catalog.pg_trigger WHERE tgrelid = 'public.dead_letters'::regclass AND tgisinternal
		AND tgconstraint = (SELECT oid FROM pg_catalog.pg_constraint WHERE conname = 'dead_letters_saga_id_fkey') ORDER BY tgname LIMIT 1;
		EXECUTE format('ALTER TABLE public.dead_letters DISABLE TRIGGER %I', t); END $$`, "constraint dead_letters_saga_id_fkey on dead_letters: its triggers are disabled", false},
	{"primary key dropped", "ALTER TABLE public.queue_mark DROP CONSTRAINT queue_mark_pkey", "constraint queue_mark_pkey on queue_mark: missing", false},
	{"domain constraint", "ALTER DOMAIN public.job_count DROP CONSTRAINT chk_job_count", "constraint chk_job_count on job_count: missing", false},
	{"domain constraint changed", "ALTER DOMAIN public.job_count DROP CONSTRAINT chk_job_count; ALTER DOMAIN public.job_count ADD CONSTRAINT chk_job_count CHECK (VALUE > -5)",
		"constraint chk_job_count on job_count: changed by hand", false},
	{"domain", "ALTER DOMAIN public.job_count SET DEFAULT 7", "domain job_count: changed by hand", false},
	{"sequence", "ALTER SEQUENCE public.events_id_seq MAXVALUE 1000", "sequence events_id_seq: changed by hand", false},
	{"index dropped", "DROP INDEX public.idx_event_router", "index idx_event_router on events: missing", false},
	{"unique index dropped", "DROP INDEX public.idx_dead_saga", "index idx_dead_saga on dead_letters: missing", false},
	{"index changed", "DROP INDEX public.idx_dead_event; CREATE INDEX idx_dead_event ON public.dead_letters (event_id) WHERE id > 10", "index idx_dead_event on dead_letters: changed by hand", false},
	{"index invalid", "UPDATE pg_catalog.pg_index SET indisvalid = false WHERE indexrelid = 'public.idx_dead_event'::regclass", "index idx_dead_event on dead_letters: changed by hand", false},
	{"index added", "CREATE INDEX mine ON public.job_queue (payload)", "index mine on job_queue: is not qtop's", true},
	{"unique index added", "CREATE UNIQUE INDEX mine ON public.job_queue (event_domain)", "index mine on job_queue: is not qtop's", false},
}

// Each change by hand is found as exactly one line, and the remedy that the line gives restores the
// schema. A full run makes one change at a time; otherwise changes of different objects are made
// together.
func TestDriftOfEverySort(t *testing.T) {
	c := newCore(t)
	conn := c.db.Conn(t, "")
	want := stable(t, conn)
	leaf := "event_outbox_" + get[string](c, "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')")
	named := strings.NewReplacer("{leaf}", leaf)
	require.Empty(t, differences(t, conn), "a fresh installation")
	for rest := drifts; len(rest) > 0; {
		var round, later []drift
		taken := map[string]bool{}
		for _, d := range rest {
			about, _, _ := strings.Cut(d.found, ":")
			if strings.Contains(d.do, "event_outbox") || strings.Contains(d.do, "{leaf}") {
				about = leaf
			}
			if taken[about] || len(round) > 0 && os.Getenv("QTOP_TEST_FULL") != "" {
				later = append(later, d)
				continue
			}
			taken[about] = true
			round = append(round, d)
			c.exec(named.Replace(d.do))
		}
		rest = later
		found := differences(t, conn)
		var lines, unexplained []string
		for _, f := range found {
			lines = append(lines, f.Object+": "+f.Why)
			require.NotContains(t, f.Remedy+f.Why, "\n")
		}
		for _, d := range round {
			at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, named.Replace(d.found)) })
			if at < 0 {
				unexplained = append(unexplained, d.sort)
				continue
			}
			require.Equal(t, d.harmless, !found[at].Harmful(), d.sort)
		}
		require.Empty(t, unexplained, "not found in %v", lines)
		require.Len(t, lines, len(round), "each is one line")
		upped := false
		for _, f := range found {
			if isUp := strings.HasPrefix(f.Remedy, "qtop migrate up"); !isUp || !upped {
				repair(t, c.db, conn, f)
				upped = upped || isUp
			}
		}
		require.Empty(t, differences(t, conn), "after %v", found)
	}
	plain := strings.NewReplacer(" {queue_owner=rwU/queue_owner} ", "  ") // a sequence that was made again has these rights by default
	require.Equal(t, strings.Split(plain.Replace(want), "\n"), strings.Split(plain.Replace(stable(t, conn)), "\n"))
	// What another role than the owner granted, migrate up cannot revoke: it stays visible.
	c.exec("GRANT USAGE ON SCHEMA public TO pg_monitor; GRANT UPDATE (status) ON public.job_queue TO pg_monitor WITH GRANT OPTION; GRANT EXECUTE ON FUNCTION public.fn_job_ack(uuid[], uuid[]) TO pg_monitor WITH GRANT OPTION")
	c.exec("SET ROLE pg_monitor; GRANT UPDATE (status) ON public.job_queue TO queue_viewer; GRANT EXECUTE ON FUNCTION public.fn_job_ack(uuid[], uuid[]) TO PUBLIC; RESET ROLE")
	up(t, c.db, schema.Current())
	granted := differences(t, conn)
	require.Len(t, granted, 2, "%v", granted)
	require.Equal(t, "rights FUNCTION fn_job_ack: PUBLIC has EXECUTE, granted by pg_monitor", granted[0].Object+": "+granted[0].Why)
	require.Equal(t, "SET ROLE pg_monitor; REVOKE UPDATE (status) ON TABLE public.job_queue FROM queue_viewer CASCADE; RESET ROLE", granted[1].Remedy)
	for _, d := range granted {
		repair(t, c.db, conn, d)
	}
	require.Empty(t, differences(t, conn))
	// What a role of qtop granted to others is revoked with the right of that role.
	c.exec("GRANT SELECT ON public.job_queue TO queue_viewer WITH GRANT OPTION; SET ROLE queue_viewer; GRANT SELECT ON public.job_queue TO pg_monitor; RESET ROLE")
	up(t, c.db, schema.Current())
	require.Empty(t, differences(t, conn))
	c.exec("ALTER TYPE public.webhook_job_status RENAME VALUE 'Leased' TO 'Taken'") // check constraints contain the names of the values
	found := differences(t, conn)
	require.Equal(t, "enum webhook_job_status", found[0].Object)
	repair(t, c.db, conn, found[0])
	require.Empty(t, differences(t, conn))
}

// A table that is named almost as a partition is none, and a partition with another name or other
// bounds than qtop gives is said.
func TestPartitionsMadeByHand(t *testing.T) {
	c := newCore(t)
	conn := c.db.Conn(t, "")
	c.exec("SET ROLE queue_owner")
	for _, name := range []string{"job_history_2026_13_45", "job_history_2026_00_01", "job_history_2026_02_30", "job_history_0000_01_01", "job_history_2026_01", "event_outbox_2026_13", "event_outbox_2026_01_01"} {
		c.exec("CREATE TABLE public." + name + " ()")
	}
	require.Empty(t, differences(t, conn))
	for _, made := range []struct{ name, of, bounds, remedy string }{
		{"job_history_2001_02", "job_history", "FROM ('2001-02-01 00:00Z') TO ('2001-03-01 00:00Z')", "DETACH PARTITION public.job_history_2001_02"},
		{"job_history_2001_03_01", "job_history", "FROM ('2001-03-02 00:00Z') TO ('2001-03-03 00:00Z')", "RENAME TO job_history_2001_03_02"},
		{"mine", "job_history", "FROM ('2001-03-04 00:00Z') TO ('2001-03-05 00:00Z')", "RENAME TO job_history_2001_03_04"},
		{"job_history_2001_03_06", "job_history", "FROM ('2001-03-06 06:00Z') TO ('2001-03-07 06:00Z')", "DETACH PARTITION public.job_history_2001_03_06"},
		{"job_history_early", "job_history", "FROM (MINVALUE) TO ('-infinity')", "DETACH PARTITION public.job_history_early"},
		{"job_history_late", "job_history", "FROM ('294276-12-31 00:00Z') TO ('infinity')", "DETACH PARTITION public.job_history_late"},
		{"event_outbox_2001_02_01", "event_outbox", "FROM ('2001-02-01 00:00Z') TO ('2001-02-02 00:00Z')", "DETACH PARTITION public.event_outbox_2001_02_01"},
		{"events of 2001", "event_outbox", "FROM ('2001-03-01 00:00Z') TO ('2001-04-01 00:00Z')", "RENAME TO event_outbox_2001_03"},
	} {
		c.exec(fmt.Sprintf("CREATE TABLE public.%q PARTITION OF public.%s FOR VALUES %s", made.name, made.of, made.bounds))
		found := differences(t, conn)
		require.Equal(t, "table "+made.name, found[0].Object)
		require.Contains(t, found[0].Why, "is a partition of "+made.of+" that qtop did not make (FOR VALUES FROM (")
		require.True(t, strings.HasSuffix(found[0].Remedy, " "+made.remedy), found[0].Remedy)
		for range 3 { // what has the name of a partition now needs its bounds and its guard
			for _, d := range found {
				if !strings.Contains(d.Object, made.name+"_no_truncate") || !strings.Contains(made.remedy, "RENAME") {
					repair(t, c.db, conn, d)
				}
			}
			found = differences(t, conn)
		}
		require.Empty(t, found)
	}
	c.exec("ALTER TABLE public.job_history DETACH PARTITION public.job_history_2001_03_02; ALTER TABLE public.event_outbox DETACH PARTITION public.event_outbox_2001_03")
	for _, found := range differences(t, conn) {
		require.Contains(t, found.Why, "is no partition of")
		repair(t, c.db, conn, found)
	}
	require.Empty(t, differences(t, conn))
}

func differences(t *testing.T, conn *pgx.Conn) []schema.Difference {
	t.Helper()
	all, err := schema.Differences(t.Context(), conn)
	require.NoError(t, err)
	return all
}

// repair runs the remedy of a difference, each statement separately, as psql does.
func repair(t *testing.T, db *pgtest.DB, conn *pgx.Conn, d schema.Difference) {
	t.Helper()
	if strings.HasPrefix(d.Remedy, "qtop migrate up") {
		up(t, db, schema.Current())
		return
	}
	for statement := range strings.SplitSeq(d.Remedy, "; ") {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err, "%s: %s", d.Object, statement)
	}
}
