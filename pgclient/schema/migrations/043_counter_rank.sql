-- The folded counters of open dead letters by size, and what they add up to: a snapshot shows the largest groups and
-- the totals, however many groups there are. In a table of its own, because an index on queue_counter.n would keep
-- every update of a counter from being HOT.

CREATE TABLE public.queue_counter_rank (
  scope text NOT NULL,
  k1    text NOT NULL DEFAULT '',
  k2    text NOT NULL DEFAULT '',
  k3    text NOT NULL DEFAULT '',
  n     bigint NOT NULL,
  PRIMARY KEY (scope, k1, k2, k3)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- with the keys: thousands of groups may have the same n
CREATE INDEX ix_queue_counter_rank_n ON public.queue_counter_rank (scope, n DESC, k1, k2, k3);

-- Folds wait until this transaction ends; producers and readers do not use the lock.
LOCK TABLE public.queue_counter IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO public.queue_counter_rank (scope, k1, k2, k3, n)
SELECT x.scope, x.k1, x.k2, x.k3, sum(c.n)
FROM public.queue_counter c
CROSS JOIN LATERAL (VALUES (c.scope, c.k1, c.k2, c.k3),
  ('open_' || c.scope, '', '', ''),
  ('subject_' || c.scope, CASE c.scope WHEN 'dead_job' THEN c.k2 ELSE c.k1 END,
    CASE c.scope WHEN 'dead_webhook' THEN 'webhook' ELSE c.k3 END, '')) AS x (scope, k1, k2, k3)
WHERE c.scope IN ('dead_webhook', 'dead_job', 'dead_event')
GROUP BY x.scope, x.k1, x.k2, x.k3 HAVING sum(c.n) <> 0;

---- create above / drop below ----

DROP TABLE public.queue_counter_rank;
