package inspect

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// Partitions says what EnsurePartitions found.
type Partitions struct {
	Made   int64       // that were missing
	Caught int64       // default partitions that hold rows
	Unmade []Partition // that cannot be made
}

// Partition is one that cannot be made.
type Partition struct {
	Why, Remedy queue.Text
}

// EnsurePartitions creates the missing partitions for the coming days, as the tick worker
// retention_sweep does. may = false: this login has no right to call fn_queue_partitions_ensure, and
// nothing was done.
func EnsurePartitions(ctx context.Context, c *pgclient.Client) (p Partitions, may bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	err = c.Read().QueryRow(ctx, "SELECT has_function_privilege('public.fn_queue_partitions_ensure()', 'EXECUTE')").Scan(&may)
	if err != nil || !may {
		return p, may, pgerror.Translate(err)
	}
	var why, remedy []string
	err = c.Act().QueryRow(ctx, `SELECT (e ->> 'created')::bigint,
			ARRAY(SELECT f.value ->> 'why' FROM jsonb_each(e -> 'failed') f ORDER BY f.key), ARRAY(SELECT f.value ->> 'remedy' FROM jsonb_each(e -> 'failed') f ORDER BY f.key)
		FROM (SELECT public.fn_queue_partitions_ensure() AS e) x`).Scan(&p.Made, &why, &remedy)
	if err == nil {
		err = c.Read().QueryRow(ctx, "SELECT count(*) FROM public.v_queue_health WHERE source = 'default_partition'").Scan(&p.Caught)
	}
	for i := range why {
		p.Unmade = append(p.Unmade, Partition{queue.Clean(why[i]), queue.Clean(remedy[i])})
	}
	return p, true, pgerror.Translate(err)
}

// KeptSizes returns one line with the size on disk of the tables that retention does not
// touch: their sum, each table (largest first), and the average growth per day of the webhook
// tables since their oldest event.
func KeptSizes(ctx context.Context, c *pgclient.Client) (queue.Text, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	var line string
	err := c.Read().QueryRow(ctx, `SELECT concat(pg_size_pretty(sum(bytes)), ': ', string_agg(name || ' ' || pg_size_pretty(bytes), ', ' ORDER BY bytes DESC, name),
			(SELECT format('; those of webhooks grow by %s a day on the average since %s', pg_size_pretty((sum(bytes) FILTER (WHERE hooks)
					/ greatest(extract(epoch FROM now() - o.created_at) / 86400, 1))::numeric), to_char(o.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD'))
				FROM (SELECT e.created_at FROM public.events e ORDER BY e.id LIMIT 1) o WHERE bool_or(hooks)))
		FROM (SELECT c.relname AS name, pg_total_relation_size(c.oid) AS bytes, c.relname <> 'queue_operator_action' AS hooks FROM pg_class c
			WHERE c.oid = 'public.queue_operator_action'::regclass OR c.oid = ANY (ARRAY['public.events', 'public.webhook_delivery_sagas',
				'public.webhook_delivery_jobs', 'public.dead_letters']::regclass[])
				AND (SELECT f.n = 0 FROM public.v_dot_config_number f WHERE f.key = 'retention.webhooks_days')) t`).Scan(&line)
	return queue.Clean(line), pgerror.Translate(err)
}

// CounterDrift returns up to twenty counters and derived rows that differ from their tables,
// and how many there are. Only tables of up to 256 MiB are counted, because larger ones would
// exceed the read timeout; large lists the tables that were skipped.
func CounterDrift(ctx context.Context, c *pgclient.Client) (drift []queue.Text, n int64, large []queue.Text, err error) {
	const from = " FROM public.fn_queue_counter_drift(268435456) d "
	drift, n, err = counted(ctx, c, `SELECT CASE d.scope WHEN 'job_lease' THEN format('job_lease: %s missing or wrong, whose jobs may stay leased for ever', d.found)
		ELSE concat_ws(' ', d.scope, d.k1, NULLIF(d.k2, ''), NULLIF(d.k3, '')) || format(': %s, counted %s', d.found, d.counted) END, count(*) OVER ()`+
		from+"WHERE d.found IS NOT NULL ORDER BY 1 LIMIT 20")
	if err == nil {
		large, _, err = counted(ctx, c, "SELECT d.scope, count(*) OVER ()"+from+"WHERE d.found IS NULL ORDER BY 1")
	}
	return drift, n, large, err
}

// OddIDs returns up to twenty ids of executors, hosts and consumers that an older release accepted
// and that new rows may not have, each with its kind, and the number of all such ids.
func OddIDs(ctx context.Context, c *pgclient.Client) (ids []queue.Text, n int64, err error) {
	return counted(ctx, c, "SELECT v.kind || ' ' || left(v.id, 200), count(*) OVER () FROM public.v_queue_odd_id v ORDER BY 1 LIMIT 20")

}

// NeverDue returns the queue lanes with jobs that an older release stored with a due time after
// the year 9999, such as infinity: they count as scheduled, but no tick ever makes them due. n
// is the number of such jobs in all lanes.
func NeverDue(ctx context.Context, c *pgclient.Client) (lanes []queue.Text, n int64, err error) {
	return counted(ctx, c, `SELECT format('%s of %s in %s', count(*), q.job_kind, q.event_domain), (sum(count(*)) OVER ())::bigint
		FROM public.job_queue q WHERE NOT q.ready AND q.process_after > '9999-12-31Z' GROUP BY q.job_kind, q.event_domain ORDER BY 1 LIMIT 20`)

}

// Behind is a sequence that would draw ids which exist.
type Behind struct {
	Sequence, Table, Column queue.Text // quoted for a statement
	Draws, Largest          int64      // the next id that it draws, and the largest in the table
}

// SequencesBehind returns the sequences that would draw ids which exist.
func SequencesBehind(ctx context.Context, c *pgclient.Client) ([]Behind, error) {
	return read[Behind](ctx, c, "SELECT b.sequence, b.table_name, b.id_column, b.draws, b.largest FROM public.fn_queue_sequences_behind() b")
}
