package schema_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// A later migration has a move, which changes many rows in batches: after an error, the next
// migrate up continues the move where it stopped.
func TestUpgradeMoves(t *testing.T) {
	c := newCore(t)
	c.exec("INSERT INTO public.queue_mark (label, created_by) SELECT n::text, 'ann' FROM generate_series(1, 25) n")
	number := fmt.Sprintf("%03d", schema.Latest()+1)
	l := newLater(t).
		write("migrations/"+number+"_test.sql", "ALTER TABLE public.queue_counter ADD COLUMN moved boolean NOT NULL DEFAULT false;\n---- create above / drop below ----\n").
		write("moves/"+number+"_test.sql", `INSERT INTO public.queue_counter (scope, k1, n)
SELECT 'test', m.label, 1 / (m.label <> '17')::int FROM public.queue_mark m
WHERE NOT EXISTS (SELECT FROM public.queue_counter c WHERE c.scope = 'test' AND c.k1 = m.label) ORDER BY m.mark_id LIMIT 10;`)
	err := l.release().Up(t.Context(), c.db.DSN(""), schema.UpOptions{})
	require.ErrorContains(t, err, "division by zero")
	require.ErrorContains(t, err, "moves/"+number+"_test.sql")
	require.Equal(t, "10 false", get[string](c, "SELECT moved || ' ' || (ended_at IS NOT NULL) FROM public.qtop_schema_move"))
	require.Equal(t, 10, get[int](c, "SELECT count(*) FROM public.queue_counter WHERE scope = 'test'"), "the batch before stands")
	l.replace("moves/"+number+"_test.sql", "1 / (m.label <> '17')::int", "1")
	r, err := schema.Load(l.files)
	require.NoError(t, err)
	require.Contains(t, up(t, c.db, r), "move "+number+"_test: done, 25 rows")
	require.Equal(t, 25, get[int](c, "SELECT count(*) FROM public.queue_counter WHERE scope = 'test'"))
	require.NotContains(t, up(t, c.db, r), "move")
}

// A flag that is new in a later release gets its default; flags that operators set keep their
// values, and are described as that release does.
func TestUpgradeSeeds(t *testing.T) {
	c := newCore(t)
	c.exec("SELECT public.fn_dot_config_set('webhook.max_attempts', '7', 'ann', 'mine')")
	audits := get[int](c, "SELECT count(*) FROM public.queue_operator_action")
	r := newLater(t).add("seeds.sql", "SELECT public.fn_dot_config_seed('test.flag', 'integer', '5', 'a new flag');").
		replace("seeds.sql", "'webhook.max_attempts', 'integer', '10'", "'webhook.max_attempts', 'integer', '11'").
		replace("seeds.sql", "', and hosts send no webhooks'", "', and more'").release()
	const described = "SELECT description FROM public.dot_config WHERE key = 'queue.tick.webhook_worker.interval_seconds'"
	require.Equal(t, "how often the webhook_worker tick runs, in seconds; 0 = off, and hosts send no webhooks", get[string](c, described))
	up(t, c.db, r)
	require.Equal(t, "how often the webhook_worker tick runs, in seconds; 0 = off, and more", get[string](c, described))
	require.Equal(t, "5 migration", get[string](c, "SELECT value || ' ' || updated_by FROM public.dot_config WHERE key = 'test.flag'"))
	require.Equal(t, "7 ann 11", get[string](c, "SELECT value || ' ' || updated_by || ' ' || default_value FROM public.dot_config JOIN public.dot_config_rule USING (key) WHERE key = 'webhook.max_attempts'"))
	require.Equal(t, audits, get[int](c, "SELECT count(*) FROM public.queue_operator_action"), "a seed is no operator's act")
}

// Wait times that an operator set as base and cap become a retry schedule that is still recorded as
// set by that operator. Flags that nobody set get the defaults of this release.
func TestUpgradeCarriesWaitsOver(t *testing.T) {
	t.Parallel()
	db := pgtest.Released(t)
	conn := db.Conn(t, "")
	for key, value := range map[string]string{"webhook.backoff_base_seconds": "7", "webhook.backoff_cap_seconds": "60"} {
		var rule *string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT public.fn_dot_config_set($1, $2, 'ann', 'ours') ->> 'rule'", key, value).Scan(&rule))
		require.Nil(t, rule, key)
	}
	var audits, after int
	count := "SELECT count(*) FROM public.queue_operator_action"
	require.NoError(t, conn.QueryRow(t.Context(), count).Scan(&audits))
	up(t, db, schema.Current())
	for key, want := range map[string]string{
		"webhook.retry_schedule":           "7s 14s 28s 56s 60s by ann",
		"queue.retry.schedule":             "10s 20s 30s 2m 2m 5m 10m 20m 30m 50m 1h 1h 1h 2h 2h 3h 4h 4h 4h by migration",
		"webhook.max_attempts":             "1 by ann",
		"queue.retry.max_attempts_default": "20 by migration",
	} {
		var got string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT concat(value, ' by ', updated_by) FROM public.dot_config WHERE key = $1", key).Scan(&got))
		require.Equal(t, want, got, key)
	}
	var left int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM public.dot_config FULL JOIN public.dot_config_rule USING (key) WHERE key LIKE '%backoff%'").Scan(&left))
	require.Zero(t, left)
	require.NoError(t, conn.QueryRow(t.Context(), count).Scan(&after))
	require.Equal(t, audits, after, "an upgrade is no operator's act")
}

// If several migrate up run at once, one upgrades the database, and the others print which session
// they wait for.
func TestUpgradeTogether(t *testing.T) {
	t.Parallel()
	db := pgtest.Released(t)
	var said [3]lines
	var wg sync.WaitGroup
	errs := make([]error, len(said))
	for i := range said {
		wg.Go(func() {
			errs[i] = schema.Current().Up(context.Background(), db.DSN(""), schema.UpOptions{Progress: said[i].add})
		})
	}
	wg.Wait()
	did, waited := 0, 0
	for i := range said {
		require.NoError(t, errs[i])
		if strings.Contains(said[i].String(), "up 024") {
			did++
		} else {
			require.Contains(t, said[i].String(), "already")
		}
		if strings.Contains(said[i].String(), "another migration of this database is running: pid ") {
			waited++
		}
	}
	require.Equal(t, 1, did)
	require.Positive(t, waited)
}

// A program is refused if the installed code does not serve it any more, is older than the program,
// or is missing.
func TestStatusRefusal(t *testing.T) {
	c := newCore(t)
	conn := c.db.Conn(t, "")
	refusal := func() string {
		st, err := schema.GetStatus(t.Context(), conn)
		require.NoError(t, err)
		what, do := st.Refusal()
		return strings.TrimSuffix(what+": "+do, ": ")
	}
	code := schema.Current().Code
	require.Empty(t, refusal())
	c.exec("UPDATE public.qtop_schema_code SET code = $1, serves = $2", code+5, code)
	require.Empty(t, refusal(), "newer code that still serves this program")
	c.exec("UPDATE public.qtop_schema_code SET serves = $1", code+1)
	require.Equal(t, fmt.Sprintf("code %d is installed, which serves programs of code %d and later; this qtop is of code %d: use a newer qtop", code+5, code+1, code), refusal())
	c.exec("UPDATE public.qtop_schema_code SET code = $1, serves = 0", code)
	c.exec("UPDATE public.qtop_schema_version SET version = version - 1")
	require.Equal(t, fmt.Sprintf("schema version %d is installed, this qtop needs %d: run qtop migrate up", schema.Latest()-1, schema.Latest()), refusal(),
		"a build between two releases: its code has the same number")
	old := pgtest.Released(t)
	conn = old.Conn(t, "")
	require.Contains(t, refusal(), "schema version 23, from before code had numbers, is installed; this qtop needs code")
	conn = pgtest.Empty(t).Conn(t, "")
	require.Equal(t, "qtop is not installed in this database: run qtop migrate up", refusal())
}

// A session that reads a partitioned table, like a backup, delays neither migrate up nor those who
// wait behind it by more than a moment: missing partitions are left to the tick worker.
func TestUpgradeBehindAReaderOfPartitions(t *testing.T) {
	c := newCore(t)
	leaf := get[string](c, "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '3 days', '\"public.job_history_\"YYYY_MM_DD')")
	c.exec("DROP TABLE " + leaf)
	tx := c.begin(c.root)
	_, err := tx.Exec(t.Context(), "SELECT 1 FROM public.job_history LIMIT 1")
	require.NoError(t, err)
	limited, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ensured, executor := make(chan error, 1), c.as("dot_executor")
	go func() {
		_, err := executor.Exec(limited, "SELECT public.fn_queue_partitions_ensure()")
		ensured <- err
	}()
	var said lines
	require.NoError(t, schema.Current().Up(limited, c.db.DSN(""), schema.UpOptions{Progress: said.add, LockWait: time.Nanosecond}))
	require.Contains(t, said.String(), "retention_sweep makes the partitions in its next run")
	refused(t, "55P03", <-ensured, "as doctor calls it")
	require.NoError(t, tx.Rollback(t.Context()))
	up(t, c.db, schema.Current())
	require.True(t, get[bool](c, "SELECT to_regclass($1) IS NOT NULL", leaf))
}
