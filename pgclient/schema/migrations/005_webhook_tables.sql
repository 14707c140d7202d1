-- Webhook delivery: events, subscriptions, sagas, jobs and dead letters. Source: R02.

CREATE TYPE public.webhook_saga_status AS ENUM
  ('Pending', 'InProgress', 'PendingRetry', 'Completed', 'DeadLettered');

CREATE TYPE public.webhook_job_status AS ENUM ('Pending', 'Leased', 'Completed', 'Failed');

-- ---------------------------------------------------------------------------------------------------
-- events: append-only. created_at and created_xid are stamped, never chosen (trg_events_stamp):
-- the router's promise to skip nothing that commits late stands on created_xid.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE public.events (
  id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  external_event_id varchar(255) UNIQUE,
  event_type        varchar(100) NOT NULL CHECK (event_type <> ''),
  payload           jsonb NOT NULL,
  created_at        timestamptz NOT NULL DEFAULT now(),
  created_xid       xid8 NOT NULL DEFAULT pg_current_xact_id()
);

CREATE INDEX idx_event_router ON public.events (created_xid, id);

-- ---------------------------------------------------------------------------------------------------
-- subscriptions: what is sent where. No CHECK on the URL's scheme: what may be dialled is judged
-- when dialling. A secret is named (env:NAME, file:/path), never stored.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE public.subscriptions (
  id                    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event_type            varchar(100) NOT NULL CHECK (event_type <> ''),
  callback_url          varchar(2048) NOT NULL,
  active                boolean NOT NULL DEFAULT true,
  verified              boolean NOT NULL DEFAULT false,
  secret_ref            text CHECK (secret_ref ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$' AND secret_ref !~* '^whsec_'),
  max_attempts          int CHECK (max_attempts BETWEEN 1 AND 1000),
  rate_limit_per_second double precision
    CHECK (rate_limit_per_second > 0 AND rate_limit_per_second <= 1000000),
  created_at            timestamptz NOT NULL DEFAULT now(),
  updated_at            timestamptz NOT NULL DEFAULT now(),
  -- host[:port] in lower case without credentials; garbage is shown as it stands, cut
  endpoint              text NOT NULL GENERATED ALWAYS AS (COALESCE(
    NULLIF(lower(substring(callback_url FROM '^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]*@)?([^/?#@]*)')), ''),
    lower(left(callback_url, 100)))) STORED
);

CREATE INDEX idx_subscription_route ON public.subscriptions (event_type) WHERE active AND verified;

CREATE INDEX idx_subscription_limited ON public.subscriptions (id) WHERE rate_limit_per_second IS NOT NULL;

CREATE TABLE public.webhook_endpoint_suspensions (
  subscription_id bigint PRIMARY KEY REFERENCES public.subscriptions ON DELETE RESTRICT,
  reason          text NOT NULL CHECK (reason IN ('410', 'circuit', 'operator')),
  since           timestamptz NOT NULL DEFAULT now(),
  until           timestamptz CHECK (reason <> 'circuit' OR until IS NOT NULL),
  by              text NOT NULL CHECK (by <> ''),
  note            text,
  probe_job_id    bigint,
  probe_until     timestamptz
);

-- One row per subscription, made with it. Apart from the suspension because it changes with traffic.
CREATE TABLE public.webhook_endpoint_state (
  subscription_id      bigint PRIMARY KEY REFERENCES public.subscriptions ON DELETE RESTRICT,
  consecutive_failures int NOT NULL DEFAULT 0 CHECK (consecutive_failures >= 0),
  last_success_at      timestamptz,
  last_failure_at      timestamptz,
  last_failure_code    varchar(100)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE public.webhook_rate_bucket (
  subscription_id bigint PRIMARY KEY REFERENCES public.subscriptions ON DELETE RESTRICT,
  tokens          double precision NOT NULL DEFAULT 0 CHECK (tokens >= 0),
  refilled_at     timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- ---------------------------------------------------------------------------------------------------
-- router_offsets: events are taken in (created_xid, id) order. restored_*: after a restore into
-- another cluster the old rows (id up to restored_through_id) are gone through once more by id, the
-- ones the old offset had passed left out; until restored_after_id is NULL again that is under way.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE public.router_offsets (
  id                  int PRIMARY KEY DEFAULT 1 CHECK (id = 1),
  last_xid            xid8 NOT NULL DEFAULT '0',
  last_event_id       bigint NOT NULL DEFAULT 0,
  max_event_id        bigint NOT NULL DEFAULT 0,
  system_identifier   bigint NOT NULL,
  restored_through_id bigint,
  restored_after_id   bigint,
  restored_xid        xid8,
  events_seen         bigint NOT NULL DEFAULT 0,
  held_rows           bigint NOT NULL DEFAULT 0,
  held_since          timestamptz,
  held_xid            xid8,
  updated_at          timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- ---------------------------------------------------------------------------------------------------
-- webhook_delivery_sagas. Partial uniqueness: a dead saga stays, its requeue is a new row.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE public.webhook_delivery_sagas (
  id                           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event_id                     bigint NOT NULL REFERENCES public.events ON DELETE RESTRICT,
  subscription_id              bigint NOT NULL REFERENCES public.subscriptions ON DELETE RESTRICT,
  status                       public.webhook_saga_status NOT NULL DEFAULT 'Pending',
  attempt_count                int NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
  next_attempt_at              timestamptz DEFAULT now(),
  final_error_code             varchar(100),
  requeued_from_dead_letter_id bigint,
  requeue_generation           int NOT NULL DEFAULT 0 CHECK (requeue_generation >= 0),
  created_at                   timestamptz NOT NULL DEFAULT now(),
  updated_at                   timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT saga_waits_for_a_time CHECK
    ((status IN ('Pending', 'PendingRetry')) = (next_attempt_at IS NOT NULL)),
  CONSTRAINT saga_dies_of_a_code CHECK ((status = 'DeadLettered') = (final_error_code IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX uniq_saga_event_subscription
  ON public.webhook_delivery_sagas (event_id, subscription_id) WHERE status <> 'DeadLettered';

CREATE UNIQUE INDEX uniq_saga_requeued_from ON public.webhook_delivery_sagas (requeued_from_dead_letter_id)
  WHERE requeued_from_dead_letter_id IS NOT NULL;

CREATE INDEX idx_saga_due ON public.webhook_delivery_sagas (subscription_id, next_attempt_at, id)
  WHERE status IN ('Pending', 'PendingRetry');

-- ---------------------------------------------------------------------------------------------------
-- webhook_delivery_jobs. controlled = the subscription has a quota (rate limit or half-open circuit)
-- and is claimed through it; the free ones are claimed oldest first without looking past the others.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE public.webhook_delivery_jobs (
  id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  saga_id          bigint NOT NULL REFERENCES public.webhook_delivery_sagas ON DELETE RESTRICT,
  status           public.webhook_job_status NOT NULL DEFAULT 'Pending',
  lease_until      timestamptz,
  attempt_at       timestamptz NOT NULL DEFAULT now(),
  response_status  int CHECK (response_status BETWEEN 100 AND 999),
  error_code       varchar(100) CHECK (error_code ~ ('^(HTTP_[0-9]{3}|TIMEOUT|DNS_FAILURE|CONNECTION_REFUSED|'
    'CONNECTION_RESET|TLS_FAILURE|PROTOCOL_ERROR|UNREACHABLE|ADDRESS_REFUSED|BAD_URL|SIGNING_FAILED|'
    'WORKER_PANIC|LEASE_LOST_LIMIT)$')),
  attempt_no       int NOT NULL CHECK (attempt_no >= 1),
  subscription_id  bigint NOT NULL,
  controlled       boolean NOT NULL DEFAULT false,
  worker_id        varchar(200),
  lease_token      uuid,
  lease_resets     int NOT NULL DEFAULT 0 CHECK (lease_resets BETWEEN 0 AND 3),
  retry_after_at   timestamptz,
  started_at       timestamptz,
  finished_at      timestamptz,
  took_ms          double precision CHECK (took_ms >= 0),
  response_excerpt text CHECK (octet_length(response_excerpt) <= 4096),
  settled_at       timestamptz,
  CONSTRAINT uniq_job_saga_attempt UNIQUE (saga_id, attempt_at),
  CONSTRAINT uniq_job_saga_attempt_no UNIQUE (saga_id, attempt_no),
  CONSTRAINT job_fields_fit_status CHECK (CASE status
    WHEN 'Pending' THEN num_nonnulls(lease_until, lease_token, worker_id, started_at, finished_at,
      response_status, error_code, settled_at) = 0
    WHEN 'Leased' THEN num_nulls(lease_until, lease_token, worker_id, started_at) = 0
      AND num_nonnulls(finished_at, response_status, error_code, settled_at) = 0
    WHEN 'Completed' THEN num_nulls(finished_at, response_status) = 0 AND error_code IS NULL
      AND response_status BETWEEN 200 AND 299
    ELSE num_nulls(finished_at, error_code) = 0 END)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX idx_job_saga ON public.webhook_delivery_jobs (saga_id);

CREATE INDEX idx_job_status_lease ON public.webhook_delivery_jobs (status, lease_until);

CREATE UNIQUE INDEX uniq_job_active ON public.webhook_delivery_jobs (saga_id)
  WHERE status IN ('Pending', 'Leased');

CREATE INDEX idx_job_free ON public.webhook_delivery_jobs (id) WHERE status = 'Pending' AND NOT controlled;

CREATE INDEX idx_job_quota ON public.webhook_delivery_jobs (controlled, subscription_id, id)
  WHERE status = 'Pending';

CREATE INDEX idx_job_unsettled ON public.webhook_delivery_jobs (id)
  WHERE status IN ('Completed', 'Failed') AND settled_at IS NULL;

CREATE INDEX idx_job_endpoint_history ON public.webhook_delivery_jobs (subscription_id, id)
  WHERE settled_at IS NOT NULL;

-- ---------------------------------------------------------------------------------------------------
-- dead_letters and what was done about them. dead_letter_open is derived, so that groups and pages
-- never anti-join; only triggers write it.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE public.dead_letters (
  id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  saga_id          bigint NOT NULL REFERENCES public.webhook_delivery_sagas ON DELETE RESTRICT,
  event_id         bigint NOT NULL REFERENCES public.events ON DELETE RESTRICT,
  subscription_id  bigint NOT NULL REFERENCES public.subscriptions ON DELETE RESTRICT,
  final_error_code varchar(100) NOT NULL,
  failed_at        timestamptz NOT NULL DEFAULT now(),
  payload_snapshot jsonb NOT NULL
);

CREATE UNIQUE INDEX idx_dead_saga ON public.dead_letters (saga_id);

CREATE INDEX idx_dead_event ON public.dead_letters (event_id);

ALTER TABLE public.webhook_delivery_sagas ADD CONSTRAINT saga_requeued_from_letter
  FOREIGN KEY (requeued_from_dead_letter_id) REFERENCES public.dead_letters ON DELETE RESTRICT;

CREATE TABLE public.dead_letter_requeues (
  dead_letter_id bigint PRIMARY KEY REFERENCES public.dead_letters ON DELETE RESTRICT,
  new_saga_id    bigint NOT NULL UNIQUE REFERENCES public.webhook_delivery_sagas ON DELETE RESTRICT,
  requeued_at    timestamptz NOT NULL DEFAULT now(),
  requeued_by    text NOT NULL CHECK (requeued_by <> ''),
  reason         text NOT NULL CHECK (reason <> ''),
  operation_id   bigint
);

CREATE INDEX idx_requeue_operation ON public.dead_letter_requeues (operation_id)
  WHERE operation_id IS NOT NULL;

CREATE TABLE public.dead_letter_resolutions (
  dead_letter_id bigint PRIMARY KEY REFERENCES public.dead_letters ON DELETE RESTRICT,
  resolution     text NOT NULL CHECK (resolution IN ('abandoned', 'delivered_otherwise', 'duplicate')),
  note           text,
  by             text NOT NULL CHECK (by <> ''),
  at             timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE public.dead_letter_open (
  dead_letter_id   bigint PRIMARY KEY,
  final_error_code varchar(100) NOT NULL,
  subscription_id  bigint NOT NULL,
  failed_at        timestamptz NOT NULL
);

CREATE INDEX idx_dead_open_group
  ON public.dead_letter_open (final_error_code, subscription_id, failed_at, dead_letter_id);

---- create above / drop below ----

ALTER TABLE public.webhook_delivery_sagas DROP CONSTRAINT saga_requeued_from_letter;
DROP TABLE public.dead_letter_open;
DROP TABLE public.dead_letter_resolutions;
DROP TABLE public.dead_letter_requeues;
DROP TABLE public.dead_letters;
DROP TABLE public.webhook_delivery_jobs;
DROP TABLE public.webhook_delivery_sagas;
DROP TABLE public.router_offsets;
DROP TABLE public.webhook_rate_bucket;
DROP TABLE public.webhook_endpoint_state;
DROP TABLE public.webhook_endpoint_suspensions;
DROP TABLE public.subscriptions;
DROP TABLE public.events;
DROP TYPE public.webhook_job_status;
DROP TYPE public.webhook_saga_status;
