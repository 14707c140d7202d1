// Append-only rows are never changed, whatever statement and whichever role runs it, the owner and
// a superuser included.

package schema_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestImmutable(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	j := &jobs{core: c, work: c.as("event_ingest_writer", "dot_executor", "dead_letter_operator", "workflow_admin")}
	_, deadLetters := h.die("order", 2)
	h.requeue(deadLetters[0])
	h.call("public.fn_dead_letter_resolve($1, 'abandoned', '', 'ann')", deadLetters[1:])
	j.deadLetter("k", "iu", "TIMEOUT")
	c.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	c.emit("iu", "1")
	c.exec("SELECT public.fn_queue_mark('deploy', 'ann'), public.fn_metrics_sampler_run()")

	conn := c.db.Conn(t, "")
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	ask := func(sql string, args ...any) (s string) {
		require.NoError(t, tx.QueryRow(t.Context(), sql, args...).Scan(&s), sql)
		return s
	}
	tried := 0
	for _, table := range []string{"queue_operator_action", "event_outbox", "events", "dead_letters", "dead_letter_requeues",
		"job_history", "queue_mark", "queue_metric_sample"} {
		table = "public." + table
		columns := ask("SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND attgenerated = ''", table)
		plain := ask("SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 1 AND attgenerated = '' AND attidentity = '' ORDER BY attnum LIMIT 1", table)
		key := ask(`SELECT string_agg(attname, ', ') FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
			WHERE indisprimary AND indrelid = $1::text::regclass`, table)
		leaf := ask("SELECT min(tableoid::regclass::text) FROM " + table)
		rows := fmt.Sprintf("SELECT array_agg(x::text ORDER BY x::text)::text FROM %s x", table)
		before := ask(rows)

		statements := map[string]bool{} // true: the statement may succeed without a change to a row: a trigger makes a new key, so there is no conflict
		for _, at := range []string{table, leaf} {
			statements[fmt.Sprintf("UPDATE %s SET %s = %[2]s", at, plain)] = false
			statements[fmt.Sprintf("DELETE FROM %s", at)] = false
			statements[fmt.Sprintf("TRUNCATE %s", at)] = false
			statements[fmt.Sprintf("TRUNCATE %s CASCADE", at)] = false
			statements[fmt.Sprintf("MERGE INTO %s t USING (SELECT 1) s ON true WHEN MATCHED THEN UPDATE SET %s = t.%[2]s", at, plain)] = false
			statements[fmt.Sprintf("MERGE INTO %s t USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE", at)] = false
			statements[fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %[2]s FROM %[1]s LIMIT 1 ON CONFLICT (%[3]s) DO UPDATE SET %[4]s = excluded.%[4]s",
				at, columns, key, plain)] = true
			statements[fmt.Sprintf("WITH gone AS (DELETE FROM %s RETURNING 1) SELECT count(*) FROM gone", at)] = false
		}
		for _, referenced := range []string{"DELETE FROM %s", "TRUNCATE %s CASCADE"} {
			sql := ask("SELECT COALESCE(string_agg(DISTINCT format($2::text, confrelid::regclass), '; '), '') FROM pg_constraint WHERE contype = 'f' AND conrelid = $1::text::regclass", table, referenced)
			if sql != "" {
				statements[sql] = false
			}
		}
		for _, role := range append(slices.Clone(roles[:10]), "queue_owner", "none") {
			for sql, mayPass := range statements {
				_, err := tx.Exec(t.Context(), "SAVEPOINT s; SET LOCAL ROLE "+role)
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), sql)
				if err == nil && mayPass {
					_, err = tx.Exec(t.Context(), "SET LOCAL ROLE none")
					require.NoError(t, err)
					require.Equal(t, "true", ask("SELECT (array_agg(x::text) @> $1::text::text[])::text FROM "+table+" x", before), "%s: %s", role, sql)
				} else {
					var pg *pgconn.PgError
					require.ErrorAs(t, err, &pg, "%s: %s", role, sql)
					require.Contains(t, []string{"42501", "0A000"}, pg.Code, "%s: %s: %s", role, sql, pg.Message) // 0A000: the table is referenced by another
				}
				_, err = tx.Exec(t.Context(), "ROLLBACK TO s; SET LOCAL ROLE none")
				require.NoError(t, err)
				tried++
			}
		}
		require.Equal(t, before, ask(rows))
	}
	t.Log(tried, "statements")
}

// Rows are only ever inserted into the audit, by logical replication and a restore too. So its
// triggers need no exception, and session_replication_role = replica does not disable them.
func TestAuditIsImmutableForReplicasToo(t *testing.T) {
	c := newCore(t)
	c.exec("SELECT public.fn_queue_mark('deploy', 'ann')")
	for _, sql := range []string{"UPDATE public.queue_operator_action SET actor = 'bob'", "DELETE FROM public.queue_operator_action",
		"TRUNCATE public.queue_operator_action"} {
		tx := c.begin(c.root)
		_, err := tx.Exec(t.Context(), "SET LOCAL session_replication_role = replica")
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), sql)
		refused(t, "42501", err, sql)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}
