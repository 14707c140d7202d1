-- The job queue. Live jobs stand in job_queue, finished ones in job_history; leases in job_lease, one row per
-- claim. Sources: DP1, DP4 §3.2, DP6 §3.3–3.5.

-- ---------------------------------------------------------------------------------------------------
-- What a column of job_queue may hold. A session reads the constraints of a domain once, and a statement that leaves
-- the column alone does not look at them, where a CHECK of the table is parsed by every statement that writes a row.
-- attempts needs none: a job is born with 0, and trg_job_queue_edge lets it grow by one.
-- ---------------------------------------------------------------------------------------------------
CREATE DOMAIN public.job_state AS text CONSTRAINT chk_job_state CHECK (
  VALUE = ANY ('{0queued,3leased,3in_progress,0retry_waiting}'::text[]));

CREATE DOMAIN public.job_count AS int CONSTRAINT chk_job_count CHECK (VALUE >= 0);

CREATE DOMAIN public.job_executor AS text CONSTRAINT chk_job_executor CHECK (
  VALUE = ANY (:'executor_kinds'::text[]));

CREATE DOMAIN public.job_max_attempts AS int CONSTRAINT chk_job_max_attempts CHECK (VALUE BETWEEN 1 AND 1000);

CREATE DOMAIN public.job_idempotency_key AS text CONSTRAINT chk_job_idempotency_key
  CHECK (length(VALUE) BETWEEN 1 AND 500);

CREATE DOMAIN public.job_payload AS jsonb CONSTRAINT chk_job_payload CHECK (jsonb_typeof(VALUE) = 'object'
  AND NOT VALUE ?| :'denied_keys'::text[]);

CREATE DOMAIN public.job_error AS text CONSTRAINT chk_job_error CHECK (octet_length(VALUE) <= 4096);

CREATE DOMAIN public.job_failure_code AS text CONSTRAINT chk_job_failure_code CHECK (VALUE ~ '^[A-Z][A-Z0-9_]{0,63}$');

CREATE DOMAIN public.job_prior_result AS text CONSTRAINT chk_job_prior_result
  CHECK (VALUE = ANY ('{failed,released}'::text[]));

CREATE DOMAIN public.job_end AS text CONSTRAINT chk_job_end
  CHECK (VALUE = ANY ('{leased>succeeded,in_progress>succeeded,
  leased>failed,in_progress>failed,leased>dead_letter,in_progress>dead_letter,queued>cancelled,leased>cancelled,
  in_progress>cancelled,retry_waiting>cancelled,succeeded>cleaned,failed>cleaned,dead_letter>cleaned,
  cancelled>cleaned}'::text[]));

-- ---------------------------------------------------------------------------------------------------
-- job_queue. ready is no status: late work and retries are not ready until fn_job_tick finds them due,
-- and stay outside the claim index until then. No index holds a column or a predicate that a claim
-- changes, so that claims stay HOT; leases are found through job_lease. prior_token and prior_result:
-- the last try that ended without finishing the job, so that a repeated report is a success.
-- The form of kind and domain is checked once per statement, by job_lane.
-- ---------------------------------------------------------------------------------------------------
CREATE TABLE public.job_queue (
  job_id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  job_kind           text COLLATE "C" NOT NULL,
  event_domain       text COLLATE "C" NOT NULL,
  executor           public.job_executor NOT NULL,
  status             text NOT NULL DEFAULT 'queued',
  ready              boolean NOT NULL DEFAULT true,
  priority           int NOT NULL DEFAULT 100,
  process_after      timestamptz NOT NULL DEFAULT now(),
  enqueued_at        timestamptz NOT NULL DEFAULT now(),
  picked_at          timestamptz,
  finished_at        timestamptz,
  lease_owner        text,
  lease_until        timestamptz,
  lease_token        uuid,
  attempts           int NOT NULL DEFAULT 0,
  max_attempts       public.job_max_attempts NOT NULL DEFAULT 5,
  lost_leases        public.job_count NOT NULL DEFAULT 0,
  idempotency_key    public.job_idempotency_key,
  source_ref         text,
  target_ref         text,
  payload_ref        text,
  payload            jsonb NOT NULL DEFAULT '{}',
  last_error         public.job_error,
  failure_code       public.job_failure_code,
  first_failed_at    timestamptz,
  actor              text,
  correlation_id     text,
  causation_event_id uuid,
  updated_at         timestamptz NOT NULL DEFAULT now(),
  prior_token        uuid,
  prior_result       public.job_prior_result,
  CONSTRAINT chk_job_queue_state CHECK ( -- finished_at is never set here: a value spoils the text
    concat(num_nonnulls(lease_owner, lease_until, lease_token), finished_at, status)::public.job_state IS NOT NULL),
  CONSTRAINT chk_job_queue_payload CHECK (payload::public.job_payload IS NOT NULL)
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX ix_job_queue_claim ON public.job_queue (event_domain, job_kind, priority DESC, process_after, job_id)
  WHERE ready;

CREATE INDEX ix_job_queue_due ON public.job_queue (event_domain, job_kind, process_after) WHERE ready;

 -- of how many priorities ever
CREATE INDEX ix_job_queue_late ON public.job_queue (process_after, job_id) WHERE NOT ready;

CREATE UNIQUE INDEX ux_job_queue_idempotency ON public.job_queue (job_kind, idempotency_key)
  WHERE idempotency_key IS NOT NULL;

CREATE TABLE public.job_history (
  LIKE public.job_queue INCLUDING DEFAULTS,
  from_status text NOT NULL,
  CONSTRAINT job_history_pkey PRIMARY KEY (job_id, finished_at),
  -- cleaned: trg_job_history_empty
  CONSTRAINT chk_job_history_edge CHECK (concat(from_status, '>', status)::public.job_end IS NOT NULL)
) PARTITION BY RANGE (finished_at);

CREATE TABLE public.job_history_default PARTITION OF public.job_history DEFAULT;

-- A lease is the mutex of its jobs: whoever changes a leased job holds the row of its lease first.
CREATE TABLE public.job_lease (
  lease_token     uuid PRIMARY KEY,
  lease_owner     text NOT NULL,
  subscription_id uuid NOT NULL,
  claimed_at      timestamptz NOT NULL DEFAULT now(),
  lease_until     timestamptz NOT NULL,
  job_ids         uuid[] NOT NULL,
  live            public.job_count NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

ALTER TABLE public.job_lease ALTER COLUMN job_ids SET STORAGE EXTERNAL;

 -- random ids do not compress
CREATE INDEX ix_job_lease_subscription ON public.job_lease (subscription_id);

-- Without a unique index: two producers that open the same new lane must not wait for each other.
CREATE TABLE public.job_lane (
  event_domain text COLLATE "C" NOT NULL CONSTRAINT chk_job_lane_domain CHECK (event_domain ~ '^[a-z][a-z0-9_]{0,50}$'),
  job_kind     text COLLATE "C" NOT NULL CONSTRAINT chk_job_lane_kind
    CHECK (job_kind ~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$'),
  opened_at    timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX ix_job_lane ON public.job_lane (event_domain, job_kind);

CREATE TABLE public.job_subscription (
  subscription_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  executor_id     text NOT NULL CHECK (executor_id <> '' AND length(executor_id) <= 200),
  executor_kind   text NOT NULL CONSTRAINT chk_job_subscription_kind CHECK (executor_kind IN (:executor_kinds)),
  job_kind        text CONSTRAINT chk_job_subscription_job_kind CHECK (job_kind ~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$'),
  event_domain    text CONSTRAINT chk_job_subscription_domain CHECK (event_domain ~ '^[a-z][a-z0-9_]{0,50}$'),
  priority_floor  smallint NOT NULL DEFAULT 0,
  max_parallel    integer NOT NULL DEFAULT 1 CHECK (max_parallel >= 1),
  enabled         boolean NOT NULL DEFAULT false,
  notes           text,
  registered_by   text NOT NULL,
  registered_at   timestamptz NOT NULL DEFAULT now(),
  updated_by      text,
  updated_at      timestamptz NOT NULL DEFAULT now(),
  UNIQUE NULLS NOT DISTINCT (executor_id, job_kind, event_domain)
);

CREATE INDEX ix_job_subscription_claim ON public.job_subscription (executor_id, job_kind, event_domain)
  WHERE enabled = true;

CREATE TABLE public.executor_producer (
  executor_kind text NOT NULL CHECK (executor_kind IN (:executor_kinds)),
  producer_role text NOT NULL CHECK (producer_role <> ''),
  PRIMARY KEY (executor_kind, producer_role)
);

CREATE TABLE public.job_dead_letter (
  dead_letter_id  uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  job_id          uuid NOT NULL UNIQUE,
  job_kind        text NOT NULL,
  event_domain    text NOT NULL,
  executor        text NOT NULL,
  attempts        int NOT NULL,
  failure_code    text NOT NULL,
  last_error      text,
  payload         jsonb NOT NULL,
  priority        int NOT NULL DEFAULT 100,
  max_attempts    public.job_max_attempts NOT NULL DEFAULT 5,
  source_ref      text,
  target_ref      text,
  payload_ref     text,
  correlation_id  text,
  causation_event_id uuid,
  first_failed_at timestamptz NOT NULL,
  last_failed_at  timestamptz NOT NULL,
  triage_status   text NOT NULL DEFAULT 'open'
    CHECK (triage_status IN ('open', 'replayed', 'abandoned', 'done_otherwise', 'duplicate')),
  triage_note     text,
  resolved_at     timestamptz,
  resolved_by     text,
  resolution      text,
  replayed_job_id uuid UNIQUE,
  CONSTRAINT chk_job_dead_letter_resolved CHECK (
    num_nonnulls(resolved_at, resolved_by, resolution) = CASE triage_status WHEN 'open' THEN 0 ELSE 3 END
    AND (replayed_job_id IS NOT NULL) = (triage_status = 'replayed'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX ix_job_dead_letter_open
  ON public.job_dead_letter (failure_code, job_kind, event_domain, last_failed_at, dead_letter_id)
    WHERE resolved_at IS NULL;

CREATE INDEX ix_job_dead_letter_newest
  ON public.job_dead_letter (last_failed_at DESC, dead_letter_id DESC) WHERE resolved_at IS NULL;

---- create above / drop below ----

DROP TABLE public.executor_producer;
DROP TABLE public.job_subscription;
DROP TABLE public.job_dead_letter;
DROP TABLE public.job_lane;
DROP TABLE public.job_lease;
DROP TABLE public.job_history;
DROP TABLE public.job_queue;
DROP DOMAIN public.job_state, public.job_count, public.job_executor, public.job_max_attempts,
  public.job_idempotency_key,
  public.job_payload, public.job_error, public.job_failure_code, public.job_prior_result, public.job_end;
