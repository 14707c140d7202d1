-- Rates at the send: the operation that a webhook job belongs to, the tokens of operations, and endpoints that start
-- slowly after they were blocked. Items of an operation know their endpoint, so that those of a blocked one wait.

ALTER TABLE public.webhook_delivery_jobs ADD COLUMN operation_id bigint;

CREATE INDEX idx_job_operation ON public.webhook_delivery_jobs (operation_id, id)
  WHERE status = 'Pending' AND operation_id IS NOT NULL;

CREATE TABLE public.webhook_operation_bucket (
  operation_id bigint PRIMARY KEY REFERENCES public.queue_bulk_operation,
  tokens       double precision NOT NULL DEFAULT 0 CHECK (tokens >= 0 AND tokens < 'infinity'),
  refilled_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- deliveries that operations of before have requeued are tried again at their rates
INSERT INTO public.webhook_operation_bucket (operation_id, tokens)
SELECT operation_id, 1 FROM public.queue_bulk_operation WHERE kind = 'requeue_webhook';

CREATE TABLE public.webhook_slow_start (
  endpoint    text PRIMARY KEY,
  began_at    timestamptz NOT NULL,
  why         text NOT NULL,
  rate        double precision NOT NULL CHECK (rate > 0 AND rate < 'infinity'),
  step_at     timestamptz NOT NULL,
  delivered   bigint NOT NULL DEFAULT 0,
  failed      bigint NOT NULL DEFAULT 0,
  tokens      double precision NOT NULL DEFAULT 1 CHECK (tokens >= 0 AND tokens < 'infinity'),
  refilled_at timestamptz NOT NULL
) WITH (fillfactor = 50);

ALTER TABLE public.queue_bulk_operation
  ADD COLUMN requeued bigint NOT NULL DEFAULT 0,
  ADD COLUMN waits text,
  ADD COLUMN watch_since timestamptz;
-- done is what was requeued until the next tick of an operation that runs
UPDATE public.queue_bulk_operation SET requeued = done, watch_since = started_at;

ALTER TABLE public.queue_bulk_operation_item ADD COLUMN subscription_id bigint NOT NULL DEFAULT 0;

CREATE INDEX ix_queue_bulk_waiting ON public.queue_bulk_operation_item (operation_id, subscription_id, item_no)
  WHERE outcome IS NULL;

---- create above / drop below ----

DROP INDEX public.ix_queue_bulk_waiting;
ALTER TABLE public.queue_bulk_operation_item DROP COLUMN subscription_id;
UPDATE public.queue_bulk_operation SET done = requeued, watch_from = next_item;
ALTER TABLE public.queue_bulk_operation DROP COLUMN watch_since, DROP COLUMN waits, DROP COLUMN requeued;
DROP TABLE public.webhook_slow_start;
DROP TABLE public.webhook_operation_bucket;
DROP INDEX public.idx_job_operation;
ALTER TABLE public.webhook_delivery_jobs DROP COLUMN operation_id;
