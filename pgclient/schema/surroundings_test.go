// A producer's transaction needs only the tables of the work itself. If another table of qtop is
// locked, renamed, unreadable or changed, the transaction commits at once, or is refused as
// documented.

package schema_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// ownTables are the tables of the work that a producer hands over; without one of them, this work
// cannot be handed over.
func ownTables() []string {
	return []string{"event_outbox", "events", "information_unit", "iu_comment", "iu_draft", "iu_notification_event", "iu_notification_pending", "job_queue",
		"producer_key", "unit_version"}
}

// judges are the tables that define what may be handed over: if one is locked, the producer gets
// 55P03, as docs/producers.md says.
func judges() []string { return []string{"event_type_registry", "executor_producer"} }

// tablesOf returns the tables of qtop that a transaction with this statement locks.
func (p *producing) tablesOf(sql string) (tables []string) {
	p.t.Helper()
	ctx := context.Background()
	p.n++
	tx, err := p.conn.Begin(ctx)
	require.NoError(p.t, err)
	defer func() { require.NoError(p.t, tx.Commit(ctx)) }()
	_, err = tx.Exec(ctx, p.fill(sql))
	require.NoError(p.t, err, sql)
	rows, err := tx.Query(ctx, `SELECT DISTINCT COALESCE(i.inhparent::pg_catalog.regclass::pg_catalog.text, c.oid::pg_catalog.regclass::pg_catalog.text)
		FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation AND c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::pg_catalog.regnamespace
		LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
		WHERE l.locktype = 'relation' AND l.pid = pg_catalog.pg_backend_pid() ORDER BY 1`)
	require.NoError(p.t, err)
	tables, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(p.t, err)
	for i := range tables {
		tables[i] = strings.TrimPrefix(tables[i], "public.")
	}
	return slices.Compact(tables)
}

// fault is a defect of the table TABLE_NAME: SQL that makes the defect, and SQL that repairs it.
type fault struct{ name, begin, end string }

func faults() []fault {
	return []fault{
		{"renamed", "ALTER TABLE public.TABLE_NAME RENAME TO away", "ALTER TABLE public.away RENAME TO TABLE_NAME"},
		{"unreadable", "REVOKE ALL ON public.TABLE_NAME FROM queue_owner", "GRANT ALL ON public.TABLE_NAME TO queue_owner"},
		{"without its columns", "DO $$ BEGIN EXECUTE (SELECT string_agg(format('ALTER TABLE public.TABLE_NAME RENAME %I TO %I', attname, attname || ' away'), '; ') FROM pg_catalog.pg_attribute WHERE attrelid = 'public.TABLE_NAME'::regclass AND attnum > 0 AND NOT attisdropped); END $$",
			"DO $$ BEGIN EXECUTE (SELECT string_agg(format('ALTER TABLE public.TABLE_NAME RENAME %I TO %I', attname, replace(attname, ' away', '')), '; ') FROM pg_catalog.pg_attribute WHERE attrelid = 'public.TABLE_NAME'::regclass AND attnum > 0 AND NOT attisdropped); END $$"},
		{"with a check that fails", "ALTER TABLE public.TABLE_NAME ADD CONSTRAINT broken CHECK (false) NOT VALID", "ALTER TABLE public.TABLE_NAME DROP CONSTRAINT broken"},
		{"with a trigger that fails", "CREATE FUNCTION public.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$; CREATE TRIGGER broken BEFORE INSERT ON public.TABLE_NAME FOR EACH ROW EXECUTE FUNCTION public.broken()",
			"DROP FUNCTION public.broken() CASCADE"},
		{"with a policy that hides all", "ALTER TABLE public.TABLE_NAME ENABLE ROW LEVEL SECURITY; ALTER TABLE public.TABLE_NAME FORCE ROW LEVEL SECURITY",
			"ALTER TABLE public.TABLE_NAME NO FORCE ROW LEVEL SECURITY; ALTER TABLE public.TABLE_NAME DISABLE ROW LEVEL SECURITY"},
	}
}

// TestSurroundingsStopNoProducer finds the tables to test from the locks that each way of handing
// work over takes: if a trigger reads one more table, that table is tested too.
func TestSurroundingsStopNoProducer(t *testing.T) {
	p := newProducing(t)
	holder := p.db.Conn(t, "")
	tried, refusedBy := map[string]bool{}, map[string]bool{}
	for _, bridge := range []string{"false", "true"} {
		p.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'queue.notify.bridge_enabled'", bridge)
		for i, w := range ways() {
			sql := w.sql
			if i < 4 { // the queue lane of the job must be opened again
				p.exec("DELETE FROM public.job_lane")
			}
			for _, table := range p.tablesOf(sql) {
				if slices.Contains(ownTables(), table) {
					continue
				}
				if full := os.Getenv("QTOP_TEST_FULL") != ""; !full && refusedBy[table] {
					continue // each way waits a second for the lock
				}
				tried[table] = true
				try := func(what string) {
					t.Helper()
					if i < 4 && table != "job_lane" {
						p.exec("DELETE FROM public.job_lane")
					}
					start := time.Now()
					err := p.with("BEGIN; SET LOCAL statement_timeout = '20s'", sql)
					said := fmt.Sprintf("%s %s, bridge %s: %s", table, what, bridge, sql)
					require.Less(t, time.Since(start), 10*time.Second, said)
					var pg *pgconn.PgError
					if errors.As(err, &pg) && pg.Code == "55P03" && slices.Contains(judges(), table) && strings.Contains(pg.Message, "cannot be looked up") && strings.Contains(pg.Hint, table) {
						refusedBy[table] = true
						return
					}
					if pg != nil && pg.Code == "23503" && table == "event_type_registry" && what == "with a policy that hides all" {
						return // a hidden event type counts as not registered
					}
					require.NoError(t, err, said)
				}
				tx, err := holder.Begin(t.Context())
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), "LOCK TABLE public."+table+" IN ACCESS EXCLUSIVE MODE")
				require.NoError(t, err)
				try("held")
				require.NoError(t, tx.Rollback(t.Context()))
				for _, f := range faults() {
					p.exec(strings.ReplaceAll(f.begin, "TABLE_NAME", table))
					try(f.name)
					p.exec(strings.ReplaceAll(f.end, "TABLE_NAME", table))
					p.exec("VACUUM public." + table) // until then pg_class says that the table has triggers
				}
			}
		}
	}
	for _, table := range append(judges(), "dot_config", "job_lane", "queue_counter_recent") {
		require.Contains(t, tried, table)
	}
	require.NotContains(t, tried, "dot_config_rule", "the bounds of flags are not looked up")
	for _, table := range judges() {
		require.Contains(t, refusedBy, table)
	}
	// after a recount, the work that was handed over meanwhile is counted and has its queue lane
	p.exec("SELECT public.fn_queue_recount('ann', 'after the faults')")
	p.none("differs", "SELECT scope FROM public.fn_queue_counter_drift(NULL)")
}

// If a queue lane cannot be opened in the transaction of its first job, it is opened when the
// counters of its jobs are folded.
func TestLaneIsOpenedByTheCompactor(t *testing.T) {
	p := newProducing(t)
	holder := p.db.Conn(t, "")
	tx, err := holder.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE public.job_lane IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	require.NoError(t, p.with("BEGIN", "SELECT public.fn_job_enqueue('held', 'iu', 'Agent')",
		`SELECT public.fn_job_enqueue_many('[{"job_kind": "a", "event_domain": "iu", "executor": "Agent"}, {"job_kind": "b", "event_domain": "iu", "executor": "Agent"}]')`))
	require.NoError(t, tx.Rollback(t.Context()))
	lanes := "SELECT string_agg(job_kind, ' ' ORDER BY job_kind) FROM public.job_lane WHERE event_domain = 'iu' AND job_kind IN ('held', 'a', 'b')"
	require.Nil(t, get[*string](p.core, lanes))
	p.exec("SELECT public.fn_queue_counter_compact()")
	require.Equal(t, "a b held", get[string](p.core, lanes))
	p.exec("SELECT public.fn_queue_counter_compact()")
	require.Equal(t, "a b held", get[string](p.core, lanes), "once")
	p.none("differs", "SELECT scope FROM public.fn_queue_counter_drift(NULL)")

	// invalid names of kinds and domains are refused nevertheless
	fails(t, p.root, "23514", "INSERT INTO public.job_queue (job_kind, event_domain, executor) VALUES ('no kind', 'iu', 'Agent')")
	fails(t, p.root, "23514", "INSERT INTO public.job_queue (job_kind, event_domain, executor) VALUES ('k', 'No domain', 'Agent')")
}

// A producer that writes many rows in one transaction uses one transaction id. With more than 64
// subtransactions in a session, every snapshot of every session would have to look them up.
func TestCountingTakesNoTransactionIDs(t *testing.T) {
	p := newProducing(t)
	require.NoError(t, p.with("BEGIN", p.all()...)) // opens the queue lanes
	for _, bridge := range []string{"false", "true"} {
		p.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'queue.notify.bridge_enabled'", bridge)
		tx, err := p.root.Begin(t.Context())
		require.NoError(t, err)
		var top uint64
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text::bigint").Scan(&top))
		p.n++
		for _, sql := range p.all() {
			if strings.Contains(sql, "fn_job_enqueue_many") {
				continue // always has a subtransaction, not because of the counters
			}
			_, err := tx.Exec(t.Context(), p.fill(sql))
			require.NoError(t, err)
		}
		for _, table := range append(ownTables(), "queue_counter_recent", "job_lane") {
			var others int
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM public."+table+" WHERE xmin::text::bigint > $1", top).Scan(&others))
			require.Zero(t, others, "%s, bridge %s", table, bridge)
		}
		require.NoError(t, tx.Commit(t.Context()))
	}
}

// Two-phase commit: PostgreSQL cannot prepare a transaction that has executed NOTIFY. With the
// bridge off, or with a producer that sends its wake signal after the commit, the transactions of
// all ways can be prepared.
func TestProducersPrepareTransactions(t *testing.T) {
	server := newOwn(t, map[string]string{"max_prepared_transactions": "4"})
	server.exec("INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane, active) VALUES ('iu', 'made', 'update', 'immediate', true)")
	unit := get[string](server, "SELECT public.fn_iu_save('business', 'text', 'ann') ->> 'unit_id'")
	conn, err := server.root.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	n := 0
	prepare := func(sql, setting string) error {
		n++
		for _, s := range []string{"BEGIN", setting, strings.NewReplacer(":n", fmt.Sprint(n), ":unit", unit).Replace(sql), "PREPARE TRANSACTION 'business'"} {
			if _, err := conn.Exec(t.Context(), s); err != nil {
				_, _ = conn.Exec(t.Context(), "ROLLBACK")
				return err
			}
		}
		_, err := conn.Exec(t.Context(), "COMMIT PREPARED 'business'")
		return err
	}
	for _, w := range ways() {
		require.NoError(t, prepare(w.sql, ""), w.sql)
	}
	server.exec("UPDATE public.dot_config SET value = 'true' WHERE key = 'queue.notify.bridge_enabled'")
	for _, w := range ways() {
		require.NoError(t, prepare(w.sql, "SET LOCAL qtop.doorbell = 'on'"), w.sql)
	}
	var state *pgconn.PgError
	require.ErrorAs(t, prepare(ways()[0].sql, ""), &state)
	require.Equal(t, "0A000", state.Code, "as docs/producers.md says")
	require.Equal(t, true, call(t, server.root, "public.fn_queue_doorbell('iu')")["rung"])
}

// Serializable transactions of many producers at once, each with the first job of a queue lane, do
// not conflict. Ways with idempotency keys are left out: PostgreSQL itself may refuse those.
func TestSerializableProducersDoNotConflict(t *testing.T) {
	p := newProducing(t)
	p.exec("ALTER DATABASE " + pgx.Identifier{p.db.Name}.Sanitize() + " SET default_transaction_isolation = serializable")
	pool := p.wide(8, "event_ingest_writer")
	together(t, 8, func(i int) (map[string]any, error) {
		for n := range 10 {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				var level string
				if err := tx.QueryRow(t.Context(), "SHOW transaction_isolation").Scan(&level); err != nil || level != "serializable" {
					return fmt.Errorf("level %s, %w", level, err)
				}
				for _, w := range ways() {
					if w.table != "job_queue" && w.table != "event_outbox" && w.table != "events" || strings.Contains(w.sql, "key :n") {
						continue
					}
					if _, err := tx.Exec(t.Context(), strings.ReplaceAll(strings.ReplaceAll(w.sql, "'k'", fmt.Sprintf("'k%d'", n)), `"k"`, fmt.Sprintf(`"k%d"`, n))); err != nil {
						return fmt.Errorf("%s: %w", w.sql, err)
					}
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	p.exec("SELECT public.fn_queue_counter_compact()")
	p.none("differs", "SELECT scope FROM public.fn_queue_counter_drift(NULL)")
}
