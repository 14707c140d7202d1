// Counts are exact while somebody, or autovacuum, locks the table of the counter deltas.

package schema_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// counted requires that the counters agree with the tables, also the one of events, which no
// recount compares.
func (p *producing) counted(why string) {
	p.t.Helper()
	p.none("differs "+why, "SELECT scope, k1, k2, k3, found, counted FROM public.fn_queue_counter_drift(NULL)")
	for scope, table := range map[string]string{"event_1m": "event_outbox", "job_in_5m": "job_queue"} {
		require.Equal(p.t, get[int](p.core, "SELECT count(*)::int FROM public."+table),
			get[int](p.core, "SELECT sum(n)::int FROM public.v_queue_counter WHERE scope = $1", scope), "%s %s", scope, why)
	}
}

// VACUUM FULL, REINDEX, CLUSTER and the end of a VACUUM that gives pages back hold a lock for which
// a producer's statement does not wait.
func TestCountsAreKeptWhileTheirTableIsLocked(t *testing.T) {
	p := newProducing(t)
	require.NoError(t, p.with("BEGIN", p.all()...))
	p.counted("before")
	for _, mode := range []string{"SHARE", "ACCESS EXCLUSIVE"} {
		tx := p.begin(p.root)
		_, err := tx.Exec(t.Context(), "LOCK TABLE public.queue_counter_recent IN "+mode+" MODE")
		require.NoError(t, err)
		require.NoError(t, p.with("BEGIN", p.all()...))
		require.NoError(t, p.with("BEGIN ISOLATION LEVEL SERIALIZABLE", p.all()...))
		require.NoError(t, tx.Rollback(t.Context()))
		require.Positive(t, get[int](p.core, "SELECT count(*)::int FROM public.queue_counter_delta"), mode)
		p.counted(mode)
		p.exec(compact)
		require.Zero(t, get[int](p.core, "SELECT count(*)::int FROM public.queue_counter_delta"), mode)
		p.counted("after the fold, " + mode)
	}

	// A renamed table cannot be written either; with an additional NOT NULL column, the INSERT
	// fails.
	for _, f := range [][2]string{
		{"ALTER TABLE public.queue_counter_recent RENAME TO gone", "ALTER TABLE public.gone RENAME TO queue_counter_recent"},
		{"ALTER TABLE public.queue_counter_recent ADD COLUMN more int NOT NULL", "ALTER TABLE public.queue_counter_recent DROP COLUMN more"},
	} {
		p.exec(compact) // a column is added to an empty table
		p.exec(f[0])
		require.NoError(t, p.with("BEGIN", p.all()[:4]...), f[0])
		p.exec(f[1])
		p.counted(f[0])
	}
}

// VACUUM must not give the empty pages at the end of these tables back: for that it would lock the
// table once a minute, and producers' statements would meet this lock.
func TestVacuumKeepsThePagesOfTablesOfProducers(t *testing.T) {
	c := newCore(t)
	for table, f := range map[string]struct{ fill, empty string }{
		"queue_counter_recent": {"INSERT INTO public.queue_counter_recent (scope, k1, n) SELECT 'x', i::text, 1 FROM generate_series(1, %d) i", compact},
		"job_watermark_below":  {"INSERT INTO public.job_watermark_below (event_domain, job_kind, due) SELECT 'iu', i::text, now() FROM generate_series(1, %d) i", "DELETE FROM public.job_watermark_below"},
	} {
		c.exec(fmt.Sprintf(f.fill, 2000))
		c.exec(f.empty)
		size := "SELECT pg_relation_size('public." + table + "')"
		before := get[int64](c, size)
		c.exec("VACUUM public." + table)
		require.Equal(t, before, get[int64](c, size), table)
		require.Positive(t, before, table)
		c.exec(fmt.Sprintf(f.fill, 1000))
		require.Equal(t, before, get[int64](c, size), "%s: the pages are used again", table)
	}
}

// A session that extends the file of a table holds a lock for which lock_timeout counts. A
// producer's statement must wait for it: it failed before when several sessions wrote at once.
func TestProducersWaitForTheExtensionOfATable(t *testing.T) {
	j := newJobs(t)
	j.exec("CREATE TABLE public.seen (what text, timeout text)")
	j.exec(`CREATE FUNCTION public.seen() RETURNS xid8 LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
		BEGIN INSERT INTO public.seen VALUES ('recent', current_setting('lock_timeout')); RETURN pg_current_xact_id(); END $$`)
	j.exec("ALTER TABLE public.queue_counter_recent ALTER COLUMN xid SET DEFAULT public.seen()")
	j.exec(`CREATE FUNCTION public.seen_below() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
		BEGIN INSERT INTO public.seen VALUES ('below', current_setting('lock_timeout')); RETURN NEW; END $$`)
	j.exec("CREATE TRIGGER seen BEFORE INSERT ON public.job_watermark_below FOR EACH ROW EXECUTE FUNCTION public.seen_below()")
	tx := j.begin(j.work)
	_, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '7s'")
	require.NoError(t, err)
	for _, kind := range []string{"new", "new", "other"} { // the first job of each kind opens a queue lane
		_, err = tx.Exec(t.Context(), fmt.Sprintf(`SELECT public.fn_job_enqueue_many('[{"job_kind": %q, "event_domain": "iu", "executor": "Agent"}, {"job_kind": "b", "event_domain": "iu", "executor": "Agent"}]')`, kind))
		require.NoError(t, err)
	}
	var left string
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT current_setting('lock_timeout')").Scan(&left))
	require.Equal(t, "7s", left)
	require.NoError(t, tx.Commit(t.Context()))
	j.exec("SELECT public.fn_job_watermark_below('iu', 'new', now())")
	require.Equal(t, "below 0, recent 0", get[string](j.core, "SELECT string_agg(DISTINCT what || ' ' || timeout, ', ' ORDER BY what || ' ' || timeout) FROM public.seen"))
}
