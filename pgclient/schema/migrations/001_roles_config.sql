-- The operator audit, the configuration table, and the delta counters. Sources: DP1 §8, DP4 §7, DP6 §7.

-- ---------------------------------------------------------------------------
-- The operator audit: append-only for everybody, the owner included.
-- ---------------------------------------------------------------------------
CREATE TABLE public.queue_operator_action (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at           timestamptz NOT NULL DEFAULT now(),
  actor        text NOT NULL,
  db_role      text NOT NULL DEFAULT session_user,
  client_addr  inet DEFAULT inet_client_addr(),
  action       text NOT NULL,
  target       text NOT NULL,
  filter       text,
  frozen_count bigint,
  reason       text,
  before       jsonb,
  after        jsonb,
  outcome      text NOT NULL
);

CREATE INDEX ix_queue_operator_action_target ON public.queue_operator_action (target, id DESC);

-- ---------------------------------------------------------------------------
-- Configuration
-- ---------------------------------------------------------------------------
CREATE TABLE public.dot_config (
  key         text PRIMARY KEY,
  value       text NOT NULL,
  description text NOT NULL DEFAULT '',
  updated_at  timestamptz NOT NULL DEFAULT now(),
  updated_by  text NOT NULL DEFAULT session_user
);

CREATE TABLE public.dot_config_rule (
  key           text PRIMARY KEY,
  kind          text NOT NULL CHECK (kind IN ('boolean', 'integer', 'mode')),
  default_value text NOT NULL,
  choices       text[],
  switch        boolean NOT NULL DEFAULT false
);

CREATE TABLE public.dot_config_revert (
  key        text PRIMARY KEY,
  set_value  text NOT NULL,
  set_at     timestamptz NOT NULL,
  revert_to  text NOT NULL,
  revert_at  timestamptz NOT NULL,
  set_by     text NOT NULL,
  reason     text NOT NULL
);

-- ---------------------------------------------------------------------------
-- Delta counters: statement triggers append, the counter_compactor tick folds,
-- readers add both. Counts on screen never scan a queue table.
-- ---------------------------------------------------------------------------
CREATE TABLE public.queue_counter (
  scope text NOT NULL,
  k1    text NOT NULL DEFAULT '',
  k2    text NOT NULL DEFAULT '',
  k3    text NOT NULL DEFAULT '',
  n     bigint NOT NULL,
  PRIMARY KEY (scope, k1, k2, k3)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE public.queue_counter_delta (
  scope text NOT NULL,
  k1    text NOT NULL DEFAULT '',
  k2    text NOT NULL DEFAULT '',
  k3    text NOT NULL DEFAULT '',
  n     bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

---- create above / drop below ----

DROP TABLE public.queue_counter_delta;
DROP TABLE public.queue_counter;
DROP TABLE public.dot_config_revert;
DROP TABLE public.dot_config;
DROP TABLE public.dot_config_rule;
DROP TABLE public.queue_operator_action;
