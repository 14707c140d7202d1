-- Counter deltas with the transaction that wrote them, and which of them are folded: code/counters.sql. A new table, as
-- a change of queue_counter_delta would wait for every producer.

CREATE TABLE public.queue_counter_recent (
  scope text NOT NULL,
  k1    text NOT NULL DEFAULT '',
  k2    text NOT NULL DEFAULT '',
  k3    text NOT NULL DEFAULT '',
  n     bigint NOT NULL,
  xid   xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ix_queue_counter_recent_xid ON public.queue_counter_recent (xid);

CREATE TABLE public.queue_counter_watermark (
  version  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at       timestamptz NOT NULL,
  below    xid8 NOT NULL,
  late     xid8[] NOT NULL,
  swept_at timestamptz NOT NULL
);

---- create above / drop below ----

INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
SELECT scope, k1, k2, k3, n FROM public.queue_counter_recent;
DROP TABLE public.queue_counter_watermark;
DROP TABLE public.queue_counter_recent;
