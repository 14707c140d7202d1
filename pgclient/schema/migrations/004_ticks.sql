-- Tick workers with their leases, and the pg_cron jobs. Source: DP1 §4.1, §4.3, §5, §8, §10.

CREATE TABLE public.queue_tick_worker (
  worker_name     text PRIMARY KEY,
  function        text NOT NULL CHECK (function ~ '^fn_[a-z0-9_]{1,60}$'),
  flag_key        text REFERENCES public.dot_config_rule (key),
  cron_job        boolean NOT NULL DEFAULT false,
  last_run_at     timestamptz,
  last_attempt_at timestamptz,
  last_work_at    timestamptz,
  done_total      bigint NOT NULL DEFAULT 0,
  last_result     jsonb
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE public.dot_iu_runtime_lease (
  lease_name   text PRIMARY KEY,
  lease_holder text,
  token        uuid,
  acquired_at  timestamptz,
  expires_at   timestamptz
) WITH (fillfactor = 50);

CREATE TABLE public.queue_cron_job (
  job_name     text PRIMARY KEY,
  worker_name  text NOT NULL UNIQUE,
  schedule     text NOT NULL,
  run_as       text,
  installed_at timestamptz,
  installed_by text,
  CHECK (num_nulls(run_as, installed_at, installed_by) IN (0, 3))
);

---- create above / drop below ----

DROP TABLE public.queue_cron_job;
DROP TABLE public.dot_iu_runtime_lease;
DROP TABLE public.queue_tick_worker;
