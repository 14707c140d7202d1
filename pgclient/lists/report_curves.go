package lists

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

const (
	curvePoints = 60 // the most points of a curve, plus one for the current minute, so that it fits on a line
	curveLines  = 10 // curves per metric: those with the highest maximum
)

// metrics lists the metrics of a report in their order. A sparse metric is sampled only while it is
// above zero: a missing sample counts as zero if other metrics were sampled in that minute.
var metrics = []struct {
	name   string
	sparse bool
}{
	{"waiting", true},
	{"oldest_age_seconds", true},
	{"delivered_per_minute", false},
	{"dead_per_minute", false},
	{"jobs_done_per_minute", false},
	{"dead_open", false},
	{"silent_executors", false},
	{"silent_age_seconds", true},
	{"hosts_alive", false},
	{"picture_ms", false},
}

// sampler is a metric that every run of the sampler writes once: its samples show in which minutes
// the sampler ran.
const sampler = "hosts_alive"

// curveStep returns how much time one point of a curve covers, in whole minutes, so that the span
// has at most curvePoints points.
func curveStep(span time.Duration) time.Duration {
	return max(((span-time.Minute)/curvePoints + time.Minute - 1).Truncate(time.Minute), time.Minute)
}

func reportCurves(ctx context.Context, tx pgx.Tx, r *queue.Report) error {
	from := r.Since.Truncate(time.Minute) // the time of a sample is the beginning of its minute
	step := curveStep(r.Until.Sub(from))
	r.CurveStep = int64(step / time.Second)
	n := int((r.Until.Sub(from) + step - 1) / step)
	names := make([]string, len(metrics))
	for i, m := range metrics {
		names[i] = m.name
	}
	rows, err := tx.Query(ctx, `
		WITH s AS MATERIALIZED (
			SELECT s.metric, COALESCE(CASE WHEN s.labels ->> 'queue' LIKE 'job %' THEN (s.labels ->> 'queue') || ' in ' || (s.labels ->> 'domain') END,
				s.labels ->> 'queue', s.labels ->> 'executor', s.labels ->> 'source', '') AS name, s.at, s.value
			FROM public.queue_metric_sample s WHERE s.metric = ANY ($1) AND s.at >= $2 AND s.at < $3
		), runs AS (
			SELECT count(*) AS n, max(s.at) AS last_at FROM s WHERE s.metric = $4
		), lines AS (
			SELECT s.metric, s.name, min(s.value) AS low, max(s.value) AS high,
				-- the value of the newest: an ordered aggregate would sort all of a long span
				(max(ARRAY[extract(epoch FROM s.at)::float8, s.value]))[2] AS last, count(*) < (SELECT n FROM runs) AS gaps, max(s.at) < (SELECT last_at FROM runs) AS over,
				row_number() OVER (PARTITION BY s.metric ORDER BY max(s.value) DESC, s.name) AS rank, count(*) OVER (PARTITION BY s.metric) AS n
			FROM s GROUP BY 1, 2
		), points AS (
			SELECT s.metric, s.name, floor(extract(epoch FROM s.at - $2::timestamptz) / $5)::int AS x, max(s.value) AS y FROM s GROUP BY 1, 2, 3
		)
		SELECT l.metric, l.name, l.low, l.high, l.last, l.gaps, l.over, l.n, array_agg(p.x ORDER BY p.x), array_agg(p.y ORDER BY p.x)
		FROM lines l JOIN points p USING (metric, name) WHERE l.rank <= $6 OR l.metric = $4
		GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, l.rank ORDER BY array_position($1, l.metric), l.rank`,
		names, from, r.Until, sampler, step.Seconds(), curveLines)
	if err != nil {
		return err
	}
	left := map[string]int{}
	var sparse []bool
	known := make([]bool, n)
	r.Curves, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.Curve, error) {
		c := queue.Curve{Points: make([]*float64, n)}
		var gaps, over *bool
		var total int
		var xs []int
		var ys []float64
		if err := row.Scan(&c.Metric, &c.Name, &c.Min, &c.Max, &c.Last, &gaps, &over, &total, &xs, &ys); err != nil {
			return c, err
		}
		for i, x := range xs {
			c.Points[x] = &ys[i]
			known[x] = known[x] || c.Metric == sampler
		}
		thin := false
		for _, m := range metrics {
			thin = thin || m.name == c.Metric && m.sparse
		}
		if thin && gaps != nil && *gaps {
			c.Min = 0
		}
		if thin && over != nil && *over {
			c.Last = 0
		}
		sparse = append(sparse, thin)
		left[c.Metric] = max(total-curveLines, 0)
		return c, nil
	})
	zero := 0.0
	for i, c := range r.Curves {
		for x := range c.Points {
			if sparse[i] && known[x] && c.Points[x] == nil {
				c.Points[x] = &zero
			}
		}
	}
	for _, more := range left {
		if more > 0 {
			r.More["curves"] += more
		}
	}
	return err
}
