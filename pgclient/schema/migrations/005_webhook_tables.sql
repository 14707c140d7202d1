-- Webhook delivery, the tables: what may stand in them and what may never change, whoever asks.
-- Over 500 lines because a table, its guards, its counters and its grants are read together.
-- Source: R02; the machine that moves the rows is 006, what operators do is 007.
SET LOCAL ROLE queue_owner;

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
COMMENT ON TABLE public.events IS 'Business events to deliver by webhook (R02). Append-only.';

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
COMMENT ON TABLE public.subscriptions IS
  'Who gets which event type at which URL. Only active and verified ones get sagas (R02).';

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
COMMENT ON TABLE public.webhook_endpoint_suspensions IS
  'Endpoints nothing is sent to, and why. A circuit past its until is half-open: one probe at a time.';

-- One row per subscription, made with it. Apart from the suspension because it changes with traffic.
CREATE TABLE public.webhook_endpoint_state (
  subscription_id      bigint PRIMARY KEY REFERENCES public.subscriptions ON DELETE RESTRICT,
  consecutive_failures int NOT NULL DEFAULT 0 CHECK (consecutive_failures >= 0),
  last_success_at      timestamptz,
  last_failure_at      timestamptz,
  last_failure_code    varchar(100)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE public.webhook_endpoint_state IS
  'How each endpoint has answered lately; last_success_at is exact to a second. Feeds the circuit.';

CREATE TABLE public.webhook_rate_bucket (
  subscription_id bigint PRIMARY KEY REFERENCES public.subscriptions ON DELETE RESTRICT,
  tokens          double precision NOT NULL DEFAULT 0 CHECK (tokens >= 0),
  refilled_at     timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE public.webhook_rate_bucket IS
  'Token bucket of each subscription, spent at claim by all hosts together. Holds one second of its rate.';

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
COMMENT ON TABLE public.router_offsets IS
  'One row: where the webhook router stands; held_* = events waiting for transaction held_xid to end.';
INSERT INTO public.router_offsets (system_identifier)
SELECT system_identifier FROM pg_catalog.pg_control_system();

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
COMMENT ON TABLE public.webhook_delivery_sagas IS
  'One delivery of one event to one subscription, over all its attempts (R02). Terminal rows never change.';

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
COMMENT ON TABLE public.webhook_delivery_jobs IS
  'One attempt of a saga: leased by a worker, finished once, settled once (R02). Settled rows never change.';

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
COMMENT ON TABLE public.dead_letters IS
  'Sagas that failed for good, with a full copy of the payload (R02 §3). Immutable, all of it.';

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
COMMENT ON TABLE public.dead_letter_requeues IS
  'Makes a requeue happen once: which new saga a dead letter became, by whom and why (R02 §3.3).';

CREATE TABLE public.dead_letter_resolutions (
  dead_letter_id bigint PRIMARY KEY REFERENCES public.dead_letters ON DELETE RESTRICT,
  resolution     text NOT NULL CHECK (resolution IN ('abandoned', 'delivered_otherwise', 'duplicate')),
  note           text,
  by             text NOT NULL CHECK (by <> ''),
  at             timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE public.dead_letter_resolutions IS
  'Dead letters closed without a requeue. Reopening removes the row; the audit keeps both.';

CREATE TABLE public.dead_letter_open (
  dead_letter_id   bigint PRIMARY KEY,
  final_error_code varchar(100) NOT NULL,
  subscription_id  bigint NOT NULL,
  failed_at        timestamptz NOT NULL
);
CREATE INDEX idx_dead_open_group
  ON public.dead_letter_open (final_error_code, subscription_id, failed_at, dead_letter_id);
COMMENT ON TABLE public.dead_letter_open IS
  'Dead letters neither requeued nor resolved. Kept by triggers; nobody writes it.';

-- ---------------------------------------------------------------------------------------------------
-- fn_webhook_immutable: refuses the verb for everyone, the owner included.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_immutable() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  RAISE EXCEPTION '% of % is refused: its rows never change', TG_OP, TG_TABLE_NAME
    USING ERRCODE = '42501', HINT = 'Dead letters are requeued or resolved, never edited (R02 §3).';
END $$;
COMMENT ON FUNCTION public.fn_webhook_immutable() IS
  'Trigger: refuses a change of an immutable webhook table (R02).';

CREATE TRIGGER trg_events_immutable BEFORE UPDATE OR DELETE ON public.events
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_events_no_truncate BEFORE TRUNCATE ON public.events
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_subscriptions_no_truncate BEFORE TRUNCATE ON public.subscriptions
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_sagas_no_truncate BEFORE TRUNCATE ON public.webhook_delivery_sagas
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_jobs_no_delete BEFORE DELETE ON public.webhook_delivery_jobs
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_jobs_no_truncate BEFORE TRUNCATE ON public.webhook_delivery_jobs
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_dead_letters_immutable BEFORE UPDATE OR DELETE ON public.dead_letters
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_dead_letters_no_truncate BEFORE TRUNCATE ON public.dead_letters
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_requeues_immutable BEFORE UPDATE ON public.dead_letter_requeues
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_requeues_no_truncate BEFORE TRUNCATE ON public.dead_letter_requeues
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_resolutions_immutable BEFORE UPDATE ON public.dead_letter_resolutions
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_resolutions_no_truncate BEFORE TRUNCATE ON public.dead_letter_resolutions
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_dead_open_derived BEFORE INSERT OR UPDATE OR DELETE ON public.dead_letter_open
  FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE TRIGGER trg_dead_open_no_truncate BEFORE TRUNCATE ON public.dead_letter_open
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();

-- ---------------------------------------------------------------------------------------------------
-- Stamps: times and transaction of a row come from the database, not from who writes it. The WHEN
-- keeps the ordinary insert free of a function call.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_event_stamp() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  NEW.created_at := now();
  NEW.created_xid := pg_current_xact_id();
  RETURN NEW;
END $$;
COMMENT ON FUNCTION public.fn_webhook_event_stamp() IS
  'Trigger: an event carries its own transaction and time.';
CREATE TRIGGER trg_events_stamp BEFORE INSERT ON public.events FOR EACH ROW
  WHEN (NEW.created_at IS DISTINCT FROM now() OR NEW.created_xid IS DISTINCT FROM pg_current_xact_id())
  EXECUTE FUNCTION public.fn_webhook_event_stamp();

CREATE FUNCTION public.fn_webhook_subscription_stamp() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  -- created_at decides which events a subscription may get, so nobody sets it back
  NEW.created_at := CASE TG_OP WHEN 'INSERT' THEN now() ELSE OLD.created_at END;
  NEW.updated_at := now();
  IF TG_OP = 'UPDATE' AND NEW.id <> OLD.id THEN
    RAISE EXCEPTION 'subscriptions.id never changes' USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
COMMENT ON FUNCTION public.fn_webhook_subscription_stamp() IS
  'Trigger: created_at of a subscription is when it was made.';
CREATE TRIGGER trg_subscriptions_stamp BEFORE INSERT OR UPDATE ON public.subscriptions
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_subscription_stamp();

CREATE FUNCTION public.fn_webhook_subscription_made() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO public.webhook_endpoint_state (subscription_id) SELECT id FROM new_rows;
  INSERT INTO public.webhook_rate_bucket (subscription_id) SELECT id FROM new_rows;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_subscription_made() IS
  'Trigger: each subscription has one state row and one bucket from the start.';
CREATE TRIGGER trg_subscriptions_made AFTER INSERT ON public.subscriptions
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_subscription_made();

-- ---------------------------------------------------------------------------------------------------
-- Saga guard: the legal edges stand in the WHEN, so a legal change costs no function call. A saga is
-- born Pending; only fn_dead_letter_requeue (as queue_owner) makes one from a dead letter.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_saga_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    RAISE EXCEPTION 'a saga starts as Pending with no attempts; a dead letter gets one by requeueing it'
      USING ERRCODE = '42501';
  END IF;
  RAISE EXCEPTION 'saga % may not go from % (attempts %) to % (attempts %)',
      OLD.id, OLD.status, OLD.attempt_count, NEW.status, NEW.attempt_count
    USING ERRCODE = '42501',
      HINT = 'Completed and DeadLettered sagas never change, nor does where a saga came from (R02).';
END $$;
COMMENT ON FUNCTION public.fn_webhook_saga_refuse() IS
  'Trigger: refuses a saga change outside the machine (R02).';
CREATE TRIGGER trg_saga_born BEFORE INSERT ON public.webhook_delivery_sagas FOR EACH ROW
  WHEN (NEW.status <> 'Pending' OR NEW.attempt_count <> 0
    OR (NEW.requeued_from_dead_letter_id IS NULL) <> (NEW.requeue_generation = 0)
    OR (NEW.requeued_from_dead_letter_id IS NOT NULL AND current_user <> 'queue_owner'))
  EXECUTE FUNCTION public.fn_webhook_saga_refuse();
CREATE TRIGGER trg_saga_guard BEFORE UPDATE ON public.webhook_delivery_sagas FOR EACH ROW
  WHEN (NOT (
    (NEW.id, NEW.event_id, NEW.subscription_id, NEW.requeue_generation, NEW.created_at)
      = (OLD.id, OLD.event_id, OLD.subscription_id, OLD.requeue_generation, OLD.created_at)
    AND NEW.requeued_from_dead_letter_id IS NOT DISTINCT FROM OLD.requeued_from_dead_letter_id
    AND ((OLD.status IN ('Pending', 'PendingRetry') AND NEW.status = 'InProgress'
        AND NEW.attempt_count = OLD.attempt_count)
      OR (OLD.status = 'InProgress' AND NEW.status = 'Completed' AND NEW.attempt_count = OLD.attempt_count)
      OR (OLD.status = 'InProgress' AND NEW.status IN ('PendingRetry', 'DeadLettered')
        AND NEW.attempt_count = OLD.attempt_count + 1))))
  EXECUTE FUNCTION public.fn_webhook_saga_refuse();

-- A requeue is undone by removing what never started, inside one function; nothing else is removed.
CREATE FUNCTION public.fn_webhook_undo_only() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_stack text;
BEGIN
  GET DIAGNOSTICS v_stack = PG_CONTEXT;
  IF position('fn_dead_letter_requeue_undo(bigint[],text,text,boolean)' IN v_stack) = 0 THEN
    RAISE EXCEPTION 'DELETE of % is refused: only fn_dead_letter_requeue_undo does that', TG_TABLE_NAME
      USING ERRCODE = '42501';
  END IF;
  IF TG_TABLE_NAME = 'webhook_delivery_sagas' THEN
    IF OLD.status <> 'Pending' OR OLD.attempt_count <> 0 OR OLD.requeued_from_dead_letter_id IS NULL
      OR EXISTS (SELECT 1 FROM public.webhook_delivery_jobs WHERE saga_id = OLD.id) THEN
      RAISE EXCEPTION 'DELETE of saga % is refused: it is no requeued saga without a job', OLD.id
        USING ERRCODE = '42501';
    END IF;
  END IF;
  RETURN OLD;
END $$;
COMMENT ON FUNCTION public.fn_webhook_undo_only() IS
  'Trigger: DELETE only as undo of a requeue that has not started.';
CREATE TRIGGER trg_saga_no_delete BEFORE DELETE ON public.webhook_delivery_sagas
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_undo_only();
CREATE TRIGGER trg_requeues_no_delete BEFORE DELETE ON public.dead_letter_requeues
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_undo_only();

-- Dead and its letter are one transaction: checked when it ends, whoever wrote them.
CREATE FUNCTION public.fn_webhook_saga_needs_letter() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM public.dead_letters WHERE saga_id = NEW.id) THEN
    RAISE EXCEPTION 'saga % became DeadLettered without its dead_letters row', NEW.id
      USING ERRCODE = '42501';
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_saga_needs_letter() IS
  'Trigger: a dead saga has its dead letter in the same transaction (R02 §3.2).';
CREATE CONSTRAINT TRIGGER trg_saga_needs_letter AFTER UPDATE ON public.webhook_delivery_sagas
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.status = 'DeadLettered')
  EXECUTE FUNCTION public.fn_webhook_saga_needs_letter();

-- ---------------------------------------------------------------------------------------------------
-- Job guard. Leases move only inside functions (current_user is queue_owner there): R02 lets the
-- orchestrator update jobs, but settling is all it may do to them by hand.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_job_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    RAISE EXCEPTION 'a job starts as Pending, unleased' USING ERRCODE = '42501';
  END IF;
  RAISE EXCEPTION 'job % may not go from % to % this way', OLD.id, OLD.status, NEW.status
    USING ERRCODE = '42501',
      HINT = 'The fn_webhook_job_ functions write leases and results; settled jobs never change (R02).';
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_refuse() IS
  'Trigger: refuses a job change outside the machine (R02).';
CREATE TRIGGER trg_job_born BEFORE INSERT ON public.webhook_delivery_jobs FOR EACH ROW
  WHEN (NEW.status <> 'Pending' OR NEW.lease_resets <> 0 OR NEW.retry_after_at IS NOT NULL)
  EXECUTE FUNCTION public.fn_webhook_job_refuse();
CREATE TRIGGER trg_job_guard BEFORE UPDATE ON public.webhook_delivery_jobs FOR EACH ROW
  WHEN (NOT (
    (NEW.id, NEW.saga_id, NEW.subscription_id, NEW.attempt_no, NEW.attempt_at)
      = (OLD.id, OLD.saga_id, OLD.subscription_id, OLD.attempt_no, OLD.attempt_at)
    AND OLD.settled_at IS NULL
    AND CASE
      WHEN OLD.status IN ('Completed', 'Failed') THEN NEW.status = OLD.status AND NEW.settled_at IS NOT NULL
        AND (NEW.lease_until, NEW.response_status, NEW.error_code, NEW.worker_id, NEW.lease_token,
          NEW.lease_resets, NEW.retry_after_at, NEW.started_at, NEW.finished_at, NEW.response_excerpt)
        IS NOT DISTINCT FROM (OLD.lease_until, OLD.response_status, OLD.error_code, OLD.worker_id,
          OLD.lease_token, OLD.lease_resets, OLD.retry_after_at, OLD.started_at, OLD.finished_at,
          OLD.response_excerpt)
      WHEN current_user <> 'queue_owner' OR NEW.settled_at IS NOT NULL THEN false
      WHEN OLD.status = 'Pending' THEN NEW.status IN ('Pending', 'Leased')
        AND NEW.lease_resets = OLD.lease_resets
      ELSE NEW.lease_resets BETWEEN OLD.lease_resets AND OLD.lease_resets + 1 END))
  EXECUTE FUNCTION public.fn_webhook_job_refuse();

CREATE FUNCTION public.fn_webhook_job_fill() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  SELECT COALESCE(NEW.subscription_id, s.subscription_id), COALESCE(NEW.attempt_no, s.attempt_count + 1)
    INTO NEW.subscription_id, NEW.attempt_no
    FROM public.webhook_delivery_sagas s WHERE s.id = NEW.saga_id;
  RETURN NEW;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_fill() IS
  'Trigger: what a job takes over from its saga when not given.';
CREATE TRIGGER trg_job_fill BEFORE INSERT ON public.webhook_delivery_jobs FOR EACH ROW
  WHEN (NEW.subscription_id IS NULL OR NEW.attempt_no IS NULL) EXECUTE FUNCTION public.fn_webhook_job_fill();

-- ---------------------------------------------------------------------------------------------------
-- After the fact, once per statement: what must hold between rows, the counters, the derived table.
-- Buckets are the epoch in seconds of the bucket's start.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_saga_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_minute text := (floor(extract(epoch FROM now()) / 60) * 60)::bigint::text;
BEGIN
  IF TG_OP = 'INSERT' THEN
    -- a pair that has died is delivered again by requeueing its letter, never by routing it twice
    -- OFFSET 0: a look per row, however many letters there are
    IF EXISTS (SELECT 1 FROM new_rows n WHERE n.requeued_from_dead_letter_id IS NULL AND EXISTS (
        SELECT 1 FROM public.dead_letters d WHERE d.event_id = n.event_id
          AND d.subscription_id = n.subscription_id OFFSET 0))
      OR EXISTS (SELECT 1 FROM new_rows n WHERE n.requeued_from_dead_letter_id IS NOT NULL AND EXISTS (
        SELECT 1 FROM public.dead_letters d WHERE d.id = n.requeued_from_dead_letter_id
          AND (d.event_id, d.subscription_id) <> (n.event_id, n.subscription_id) OFFSET 0)) THEN
      RAISE EXCEPTION 'a dead letter stands for this event and subscription: requeue it instead'
        USING ERRCODE = '42501';
    END IF;
    INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
    WITH a AS (SELECT subscription_id::text AS sub, count(*) AS n FROM new_rows GROUP BY subscription_id)
    SELECT 'saga', sub, 'Pending', '', n FROM a
    UNION ALL SELECT 'arrived_1m', sub, '', v_minute, n FROM a;
  ELSIF TG_OP = 'UPDATE' THEN
    INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
    WITH moved AS MATERIALIZED (
      SELECT subscription_id, status, sum(n) AS n FROM (
        SELECT subscription_id, status, -count(*) AS n FROM old_rows GROUP BY 1, 2
        UNION ALL SELECT subscription_id, status, count(*) FROM new_rows GROUP BY 1, 2) b
      GROUP BY 1, 2 HAVING sum(n) <> 0)
    SELECT 'saga', subscription_id::text, status::text, '', n FROM moved
    UNION ALL SELECT 'drained_1m', subscription_id::text, '', v_minute, sum(n) FROM moved
      WHERE status IN ('Completed', 'DeadLettered') GROUP BY subscription_id
    UNION ALL SELECT CASE status WHEN 'Completed' THEN 'delivered_1m' ELSE 'dead_1m' END, '', '', v_minute,
      sum(n) FROM moved WHERE status IN ('Completed', 'DeadLettered') GROUP BY status;
  ELSE
    INSERT INTO public.queue_counter_delta (scope, k1, k2, n)
    SELECT 'saga', subscription_id::text, status::text, -count(*)
    FROM old_rows GROUP BY subscription_id, status;
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_saga_counted() IS
  'Trigger: counters saga, arrived_1m, drained_1m, delivered_1m, dead_1m; no saga beside a dead letter.';
CREATE TRIGGER trg_saga_inserted AFTER INSERT ON public.webhook_delivery_sagas
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_saga_counted();
CREATE TRIGGER trg_saga_updated AFTER UPDATE ON public.webhook_delivery_sagas
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_saga_counted();
CREATE TRIGGER trg_saga_deleted AFTER DELETE ON public.webhook_delivery_sagas
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_saga_counted();

CREATE FUNCTION public.fn_webhook_job_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_n bigint;
  v_sagas bigint[];
BEGIN
  IF TG_OP = 'INSERT' THEN
    -- By the array and by scalar lookups: a join may be planned, and kept, from the side of the sagas.
    SELECT array_agg(saga_id) INTO v_sagas FROM new_rows;
    -- FOR SHARE: a saga about to end waits for us or we for it; either way no job joins an ended one
    PERFORM 1 FROM (SELECT s.status FROM public.webhook_delivery_sagas s WHERE s.id = ANY (v_sagas)
      ORDER BY s.id FOR SHARE) x
      WHERE x.status IN ('Completed', 'DeadLettered');
    IF FOUND OR EXISTS (SELECT 1 FROM new_rows n WHERE n.subscription_id IS DISTINCT FROM
        (SELECT s.subscription_id FROM public.webhook_delivery_sagas s WHERE s.id = n.saga_id)) THEN
      RAISE EXCEPTION 'no job for a Completed or DeadLettered saga, nor for another''s subscription'
        USING ERRCODE = '42501';
    END IF;
    INSERT INTO public.queue_counter_delta (scope, k1, n)
    SELECT 'webhook_job', 'Pending', count(*) FROM new_rows HAVING count(*) > 0;
    RETURN NULL;
  END IF;
  INSERT INTO public.queue_counter_delta (scope, k1, n)
  SELECT 'webhook_job', status::text, sum(n) FROM (
    SELECT status, -count(*) AS n FROM old_rows GROUP BY status
    UNION ALL SELECT status, count(*) FROM new_rows GROUP BY status) x
  GROUP BY status HAVING sum(n) <> 0;
  IF current_setting('qtop.doorbell', true) = 'on' OR NOT public.fn_queue_notify_enabled() THEN
    RETURN NULL;
  END IF;
  SELECT count(*) INTO v_n FROM new_rows WHERE status IN ('Completed', 'Failed') AND settled_at IS NULL;
  IF v_n > 0 THEN
    PERFORM public.fn_queue_wake('queue_wake_webhook', jsonb_build_object('layer', 'job', 'count', v_n,
      'worker_hint', 'saga_orchestrator', 'occurred_at', now()));
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_counted() IS
  'Trigger: counter webhook_job; no job for an ended saga; a finished job wakes the orchestrator.';
CREATE TRIGGER trg_job_inserted AFTER INSERT ON public.webhook_delivery_jobs
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_job_counted();
CREATE TRIGGER trg_job_updated AFTER UPDATE ON public.webhook_delivery_jobs
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_job_counted();

CREATE FUNCTION public.fn_webhook_letter_born() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM new_rows n
      JOIN public.webhook_delivery_sagas s ON s.id = n.saga_id JOIN public.events e ON e.id = n.event_id
      WHERE s.status <> 'DeadLettered' OR (s.event_id, s.subscription_id, s.final_error_code)
        <> (n.event_id, n.subscription_id, n.final_error_code) OR e.payload <> n.payload_snapshot) THEN
    RAISE EXCEPTION 'a dead letter repeats its dead saga and the event''s payload exactly'
      USING ERRCODE = '42501';
  END IF;
  INSERT INTO public.dead_letter_open (dead_letter_id, final_error_code, subscription_id, failed_at)
  SELECT id, final_error_code, subscription_id, failed_at FROM new_rows;
  INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
  SELECT 'dead_webhook_5m', final_error_code, subscription_id::text,
    (floor(extract(epoch FROM failed_at) / 300) * 300)::bigint::text, count(*)
  FROM new_rows GROUP BY 2, 3, 4;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_letter_born() IS
  'Trigger: a dead letter is a true copy, is open, and counts in dead_webhook_5m (R02 §3.1).';
CREATE TRIGGER trg_dead_letter_born AFTER INSERT ON public.dead_letters
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_letter_born();

CREATE FUNCTION public.fn_webhook_letter_closed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    DELETE FROM public.dead_letter_open o USING new_rows n WHERE o.dead_letter_id = n.dead_letter_id;
  ELSE
    INSERT INTO public.dead_letter_open (dead_letter_id, final_error_code, subscription_id, failed_at)
    SELECT d.id, d.final_error_code, d.subscription_id, d.failed_at
    FROM old_rows r JOIN public.dead_letters d ON d.id = r.dead_letter_id
    WHERE NOT EXISTS (SELECT 1 FROM public.dead_letter_requeues q WHERE q.dead_letter_id = d.id)
      AND NOT EXISTS (SELECT 1 FROM public.dead_letter_resolutions x WHERE x.dead_letter_id = d.id)
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_letter_closed() IS
  'Trigger: a letter leaves dead_letter_open when requeued or resolved and is back when that is undone.';
CREATE TRIGGER trg_requeue_closes AFTER INSERT ON public.dead_letter_requeues
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_letter_closed();
CREATE TRIGGER trg_requeue_undone AFTER DELETE ON public.dead_letter_requeues
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_letter_closed();
CREATE TRIGGER trg_resolution_closes AFTER INSERT ON public.dead_letter_resolutions
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_letter_closed();
CREATE TRIGGER trg_resolution_undone AFTER DELETE ON public.dead_letter_resolutions
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_letter_closed();

CREATE FUNCTION public.fn_webhook_open_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_sign int := CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
BEGIN
  INSERT INTO public.queue_counter_delta (scope, k1, k2, n)
  SELECT 'dead_webhook', final_error_code, subscription_id::text, v_sign * count(*)
  FROM changed_rows GROUP BY final_error_code, subscription_id;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_open_counted() IS
  'Trigger: counter dead_webhook, open letters by code and subscription.';
CREATE TRIGGER trg_dead_open_inserted AFTER INSERT ON public.dead_letter_open
  REFERENCING NEW TABLE AS changed_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_open_counted();
CREATE TRIGGER trg_dead_open_deleted AFTER DELETE ON public.dead_letter_open
  REFERENCING OLD TABLE AS changed_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_open_counted();

-- ---------------------------------------------------------------------------------------------------
-- Wake: one signal per inserting statement (arguments: layer, worker hint). Off by default.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_webhook_wake() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_n bigint;
BEGIN
  IF current_setting('qtop.doorbell', true) = 'on' OR NOT public.fn_queue_notify_enabled() THEN
    RETURN NULL;
  END IF;
  SELECT count(*) INTO v_n FROM new_rows;
  IF v_n > 0 THEN
    PERFORM public.fn_queue_wake('queue_wake_webhook', jsonb_build_object('layer', TG_ARGV[0], 'count', v_n,
      'worker_hint', TG_ARGV[1], 'occurred_at', now()));
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_wake() IS 'Trigger: rings queue_wake_webhook once per statement (DP4).';
CREATE TRIGGER trg_events_wake AFTER INSERT ON public.events REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_wake('event', 'webhook_router');
CREATE TRIGGER trg_sagas_wake AFTER INSERT ON public.webhook_delivery_sagas REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_wake('saga', 'saga_orchestrator');
CREATE TRIGGER trg_jobs_wake AFTER INSERT ON public.webhook_delivery_jobs REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_wake('job', 'webhook_worker');

-- ---------------------------------------------------------------------------------------------------
-- Rights. queue_viewer reads everything but payloads and response excerpts.
-- ---------------------------------------------------------------------------------------------------
REVOKE ALL ON FUNCTION public.fn_webhook_immutable(), public.fn_webhook_event_stamp(),
  public.fn_webhook_subscription_stamp(), public.fn_webhook_subscription_made(),
  public.fn_webhook_saga_refuse(),
  public.fn_webhook_undo_only(), public.fn_webhook_saga_needs_letter(), public.fn_webhook_job_refuse(),
  public.fn_webhook_job_fill(), public.fn_webhook_saga_counted(), public.fn_webhook_job_counted(),
  public.fn_webhook_letter_born(), public.fn_webhook_letter_closed(), public.fn_webhook_open_counted(),
  public.fn_webhook_wake() FROM PUBLIC;

GRANT SELECT, INSERT ON public.events TO event_ingest_writer;
GRANT SELECT ON public.events, public.subscriptions TO router_worker, saga_orchestrator, webhook_worker;
GRANT SELECT, INSERT ON public.webhook_delivery_sagas TO router_worker;
GRANT SELECT, INSERT, UPDATE ON public.router_offsets TO router_worker;
GRANT SELECT, UPDATE ON public.webhook_delivery_sagas TO saga_orchestrator;
GRANT SELECT, INSERT, UPDATE ON public.webhook_delivery_jobs TO saga_orchestrator;
GRANT SELECT, INSERT ON public.dead_letters TO saga_orchestrator;
GRANT SELECT ON public.webhook_delivery_sagas, public.webhook_delivery_jobs TO webhook_worker;
GRANT SELECT, INSERT, UPDATE ON public.subscriptions TO subscription_admin;
GRANT SELECT ON public.events, public.subscriptions, public.webhook_endpoint_suspensions,
  public.webhook_endpoint_state, public.webhook_rate_bucket, public.router_offsets,
  public.webhook_delivery_sagas, public.webhook_delivery_jobs, public.dead_letters,
  public.dead_letter_requeues, public.dead_letter_resolutions, public.dead_letter_open
  TO dead_letter_operator;
GRANT SELECT ON public.subscriptions, public.webhook_endpoint_suspensions, public.webhook_endpoint_state,
  public.webhook_rate_bucket, public.router_offsets, public.webhook_delivery_sagas,
  public.dead_letter_requeues, public.dead_letter_resolutions, public.dead_letter_open TO queue_viewer;
GRANT SELECT (id, external_event_id, event_type, created_at, created_xid) ON public.events TO queue_viewer;
GRANT SELECT (id, saga_id, event_id, subscription_id, final_error_code, failed_at)
  ON public.dead_letters TO queue_viewer;
GRANT SELECT (id, saga_id, status, lease_until, attempt_at, response_status, error_code, attempt_no,
    subscription_id, controlled, worker_id, lease_token, lease_resets, retry_after_at, started_at,
    finished_at, took_ms, settled_at)
  ON public.webhook_delivery_jobs TO queue_viewer;

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
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
DROP FUNCTION public.fn_webhook_wake();
DROP FUNCTION public.fn_webhook_open_counted();
DROP FUNCTION public.fn_webhook_letter_closed();
DROP FUNCTION public.fn_webhook_letter_born();
DROP FUNCTION public.fn_webhook_job_counted();
DROP FUNCTION public.fn_webhook_saga_counted();
DROP FUNCTION public.fn_webhook_job_fill();
DROP FUNCTION public.fn_webhook_job_refuse();
DROP FUNCTION public.fn_webhook_saga_needs_letter();
DROP FUNCTION public.fn_webhook_undo_only();
DROP FUNCTION public.fn_webhook_saga_refuse();
DROP FUNCTION public.fn_webhook_subscription_made();
DROP FUNCTION public.fn_webhook_subscription_stamp();
DROP FUNCTION public.fn_webhook_event_stamp();
DROP FUNCTION public.fn_webhook_immutable();
DROP TYPE public.webhook_job_status;
DROP TYPE public.webhook_saga_status;
RESET ROLE;
