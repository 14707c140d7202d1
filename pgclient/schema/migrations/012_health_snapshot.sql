-- Marks and metric samples, of which history lines are drawn, and the stored snapshot. Sources: DP4 §8, DP1 §10.

-- ---------------------------------------------------------------------------
-- Marks and samples: what history lines are drawn of. Who writes samples is 015.
-- ---------------------------------------------------------------------------
CREATE TABLE public.queue_mark (
  mark_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  label      text NOT NULL CHECK (length(label) BETWEEN 1 AND 200),
  created_by text NOT NULL CHECK (created_by <> '')
);

CREATE INDEX ix_queue_mark_at ON public.queue_mark (at DESC);

CREATE SEQUENCE public.queue_metric_sample_id;

 -- no identity: leaves are made LIKE their parent, which does not copy one
CREATE TABLE public.queue_metric_sample (
  id     bigint NOT NULL DEFAULT nextval('public.queue_metric_sample_id'),
  at     timestamptz NOT NULL,
  metric text COLLATE "C" NOT NULL,
  labels jsonb NOT NULL DEFAULT '{}',
  value  double precision NOT NULL,
  PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);

CREATE TABLE public.queue_metric_sample_default PARTITION OF public.queue_metric_sample DEFAULT;

ALTER SEQUENCE public.queue_metric_sample_id OWNED BY public.queue_metric_sample.id;

CREATE INDEX ix_queue_metric_sample_at ON public.queue_metric_sample (metric, at);

CREATE UNLOGGED TABLE public.queue_snapshot (
  one      boolean PRIMARY KEY DEFAULT true CHECK (one),
  taken_at timestamptz NOT NULL,
  took_ms  numeric NOT NULL,
  body     text NOT NULL
) WITH (fillfactor = 50);

ALTER TABLE public.queue_snapshot ALTER COLUMN body SET STORAGE EXTERNAL;

---- create above / drop below ----

DROP TABLE public.queue_snapshot;
DROP TABLE public.queue_metric_sample;
DROP TABLE public.queue_mark;
