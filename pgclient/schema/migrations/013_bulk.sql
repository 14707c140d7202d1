-- Bulk operations: a frozen selection of dead letters and its items.

CREATE TABLE public.queue_bulk_operation (
  operation_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind            text NOT NULL CHECK (kind IN ('requeue_webhook', 'replay_job', 'replay_event', 'resolve')),
  filter          text NOT NULL,
  created_by      text NOT NULL CHECK (created_by <> ''),
  created_at      timestamptz NOT NULL DEFAULT now(),
  reason          text NOT NULL CHECK (reason <> ''),
  state           text NOT NULL DEFAULT 'planned'
    CHECK (state IN ('planned', 'running', 'paused', 'completed', 'aborted')),
  state_why       text,
  state_by        text NOT NULL,
  state_at        timestamptz NOT NULL DEFAULT now(),
  started_at      timestamptz,
  rate_per_second numeric NOT NULL CHECK (rate_per_second BETWEEN 0.01 AND 1000),
  brake_percent   int NOT NULL CHECK (brake_percent BETWEEN 0 AND 100),
  canary          int NOT NULL CHECK (canary BETWEEN 0 AND 1000),
  canary_passed   boolean NOT NULL,
  watch_from      bigint NOT NULL DEFAULT 1,
  next_item       bigint NOT NULL DEFAULT 1,
  credit          numeric NOT NULL DEFAULT 0,
  credited_at     timestamptz NOT NULL DEFAULT now(),
  frozen_count    bigint NOT NULL CHECK (frozen_count > 0),
  done            bigint NOT NULL DEFAULT 0,
  skipped         bigint NOT NULL DEFAULT 0,
  failed          bigint NOT NULL DEFAULT 0,
  undone          bigint NOT NULL DEFAULT 0,
  first_ok        bigint NOT NULL DEFAULT 0,
  first_failed    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX ix_queue_bulk_live ON public.queue_bulk_operation (operation_id)
  WHERE state = ANY ('{planned,running,paused}'::text[]);

CREATE TABLE public.queue_bulk_operation_item (
  operation_id bigint NOT NULL, -- without a foreign key: it would be a third of planning a million
  item_no      bigint NOT NULL,
  target       text NOT NULL,
  outcome      text CHECK (outcome IN ('done', 'skipped', 'failed', 'undone')),
  why          text,
  new_id       text,
  at           timestamptz,
  first_result text CHECK (first_result IN ('ok', 'failed')),
  first_code   text,
  first_at     timestamptz,
  PRIMARY KEY (operation_id, item_no)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX ix_queue_bulk_unsettled ON public.queue_bulk_operation_item (operation_id, item_no)
  WHERE outcome = 'done' AND first_result IS NULL;

CREATE INDEX ix_queue_bulk_settled ON public.queue_bulk_operation_item (operation_id, first_at DESC, item_no)
  WHERE first_result IS NOT NULL;

---- create above / drop below ----

DROP TABLE public.queue_bulk_operation_item;
DROP TABLE public.queue_bulk_operation;
