-- The job queue, the tables: what may stand in them and which way a job may go, whoever asks.
-- Live jobs stand in job_queue, finished ones in job_history; leases in job_lease, one row per claim.
-- Sources: DP1, DP4 §3.2, DP6 §3.3–3.5. The machine is 010, what operators do is 011.
SET LOCAL ROLE queue_owner;

-- ---------------------------------------------------------------------------------------------------
-- What a column of job_queue may hold. A session reads the constraints of a domain once, and a statement that leaves the
-- column alone does not look at them, where a CHECK of the table is parsed by every statement that writes a row.
-- attempts needs none: a job is born with 0, and trg_job_queue_edge lets it grow by one.
-- ---------------------------------------------------------------------------------------------------
CREATE DOMAIN public.job_state AS text CONSTRAINT chk_job_state CHECK (
  VALUE = ANY ('{0queued,3leased,3in_progress,0retry_waiting}'::text[]));
COMMENT ON DOMAIN public.job_state IS 'How many of its three lease columns a live job has set, and its status.';
CREATE DOMAIN public.job_count AS int CONSTRAINT chk_job_count CHECK (VALUE >= 0);
COMMENT ON DOMAIN public.job_count IS 'A number of times, 0 or more.';
CREATE DOMAIN public.job_executor AS text CONSTRAINT chk_job_executor CHECK (
  VALUE = ANY ('{DOT,Agent,Hermes,Codex,PG_worker,external_worker,future_Kestra_adapter}'::text[]));
COMMENT ON DOMAIN public.job_executor IS 'An executor kind.';
CREATE DOMAIN public.job_max_attempts AS int CONSTRAINT chk_job_max_attempts CHECK (VALUE BETWEEN 1 AND 1000);
COMMENT ON DOMAIN public.job_max_attempts IS 'How often a job is tried, 1 to 1000.';
CREATE DOMAIN public.job_idempotency_key AS text CONSTRAINT chk_job_idempotency_key CHECK (length(VALUE) BETWEEN 1 AND 500);
COMMENT ON DOMAIN public.job_idempotency_key IS 'What makes a job the same job, 1 to 500 characters.';
CREATE DOMAIN public.job_payload AS jsonb CONSTRAINT chk_job_payload CHECK (jsonb_typeof(VALUE) = 'object'
  AND NOT VALUE ?| '{body,content,raw,vector,embedding,secret,token,password,ssn,personal_data}'::text[]);
COMMENT ON DOMAIN public.job_payload IS 'An object of references, not of content.';
CREATE DOMAIN public.job_error AS text CONSTRAINT chk_job_error CHECK (octet_length(VALUE) <= 4096);
COMMENT ON DOMAIN public.job_error IS 'What a handler said, up to 4,096 bytes.';
CREATE DOMAIN public.job_failure_code AS text CONSTRAINT chk_job_failure_code CHECK (VALUE ~ '^[A-Z][A-Z0-9_]{0,63}$');
COMMENT ON DOMAIN public.job_failure_code IS 'Why a job failed, in one word.';
CREATE DOMAIN public.job_prior_result AS text CONSTRAINT chk_job_prior_result CHECK (VALUE = ANY ('{failed,released}'::text[]));
COMMENT ON DOMAIN public.job_prior_result IS 'How a try ended that did not finish its job.';
CREATE DOMAIN public.job_end AS text CONSTRAINT chk_job_end CHECK (VALUE = ANY ('{leased>succeeded,in_progress>succeeded,
  leased>failed,in_progress>failed,leased>dead_letter,in_progress>dead_letter,queued>cancelled,leased>cancelled,
  in_progress>cancelled,retry_waiting>cancelled,succeeded>cleaned,failed>cleaned,dead_letter>cleaned,cancelled>cleaned}'::text[]));
COMMENT ON DOMAIN public.job_end IS 'How a job may end, and what may follow: the status before > the status after.';

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
CREATE INDEX ix_job_queue_due ON public.job_queue (event_domain, job_kind, process_after) WHERE ready; -- of how many priorities ever
CREATE INDEX ix_job_queue_late ON public.job_queue (process_after, job_id) WHERE NOT ready;
CREATE UNIQUE INDEX ux_job_queue_idempotency ON public.job_queue (job_kind, idempotency_key)
  WHERE idempotency_key IS NOT NULL;
COMMENT ON TABLE public.job_queue IS
  'Jobs that are not finished: queued, leased, in_progress or retry_waiting. Written by the fn_job_ functions alone.';

CREATE TABLE public.job_history (
  LIKE public.job_queue INCLUDING DEFAULTS,
  from_status text NOT NULL,
  CONSTRAINT job_history_pkey PRIMARY KEY (job_id, finished_at),
  CONSTRAINT chk_job_history_edge CHECK (concat(from_status, '>', status)::public.job_end IS NOT NULL) -- cleaned: trg_job_history_empty
) PARTITION BY RANGE (finished_at);
COMMENT ON TABLE public.job_history IS
  'Finished jobs, append-only, partitioned by day: succeeded, failed, dead_letter, cancelled, cleaned. from_status: '
  'where the job stood before.';

CREATE VIEW public.v_job AS
SELECT job_id, job_kind, event_domain, executor, status, ready, priority, process_after, enqueued_at, picked_at, finished_at,
  lease_owner, lease_until, lease_token, attempts, max_attempts, lost_leases, idempotency_key, source_ref, target_ref,
  payload_ref, payload, last_error, failure_code, first_failed_at, actor, correlation_id, causation_event_id, updated_at,
  NULL::text AS from_status
FROM public.job_queue
UNION ALL
SELECT job_id, job_kind, event_domain, executor, status, ready, priority, process_after, enqueued_at, picked_at, finished_at,
  lease_owner, lease_until, lease_token, attempts, max_attempts, lost_leases, idempotency_key, source_ref, target_ref,
  payload_ref, payload, last_error, failure_code, first_failed_at, actor, correlation_id, causation_event_id, updated_at,
  from_status
FROM public.job_history;
COMMENT ON VIEW public.v_job IS 'All jobs, live and finished. Look one up by job_id; never count it.';

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
ALTER TABLE public.job_lease ALTER COLUMN job_ids SET STORAGE EXTERNAL; -- random ids do not compress
CREATE INDEX ix_job_lease_subscription ON public.job_lease (subscription_id);
COMMENT ON TABLE public.job_lease IS
  'One row per claim: who holds which jobs until when; live = those still held. The reaper and max_parallel read this alone.';

-- Without a unique index: two producers that open the same new lane must not wait for each other.
CREATE TABLE public.job_lane (
  event_domain text COLLATE "C" NOT NULL CONSTRAINT chk_job_lane_domain CHECK (event_domain ~ '^[a-z][a-z0-9_]{0,50}$'),
  job_kind     text COLLATE "C" NOT NULL CONSTRAINT chk_job_lane_kind CHECK (job_kind ~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$'),
  opened_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ix_job_lane ON public.job_lane (event_domain, job_kind);
COMMENT ON TABLE public.job_lane IS 'Every domain and kind that ever had a job, so that no claim looks for them in the queue.';

CREATE TABLE public.job_subscription (
  subscription_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  executor_id     text NOT NULL CHECK (executor_id <> '' AND length(executor_id) <= 200),
  executor_kind   text NOT NULL CONSTRAINT chk_job_subscription_kind CHECK (executor_kind IN (
    'DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter')),
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
CREATE INDEX ix_job_subscription_claim ON public.job_subscription (executor_id, job_kind, event_domain) WHERE enabled = true;
COMMENT ON TABLE public.job_subscription IS
  'What an executor may claim (DP6 §3.3). NULL means every kind or domain; the most specific enabled row governs a job: '
  'the kind counts more than the domain.';

CREATE TABLE public.executor_producer (
  executor_kind text NOT NULL CHECK (executor_kind IN (
    'DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter')),
  producer_role text NOT NULL CHECK (producer_role <> ''),
  PRIMARY KEY (executor_kind, producer_role)
);
COMMENT ON TABLE public.executor_producer IS
  'Who may enqueue for an executor kind (DP6 §1.4). Without a row anybody with the right to enqueue may.';

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
  ON public.job_dead_letter (failure_code, job_kind, event_domain, last_failed_at, dead_letter_id) WHERE resolved_at IS NULL;
CREATE INDEX ix_job_dead_letter_newest
  ON public.job_dead_letter (last_failed_at DESC, dead_letter_id DESC) WHERE resolved_at IS NULL;
COMMENT ON TABLE public.job_dead_letter IS
  'Jobs that failed for good, with all that a replay needs: history goes before an open letter. Replayed at most once, into a new job with a new key.';

-- ---------------------------------------------------------------------------------------------------
-- Guards. The legal edges stand in the WHEN, so a legal change costs no function call. A WHEN, as a CHECK, is parsed by
-- every statement that meets it: it is short.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_job_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    RAISE EXCEPTION 'a job is born queued, unleased, with no attempts' USING ERRCODE = '42501';
  ELSIF TG_OP = 'TRUNCATE' THEN
    RAISE EXCEPTION 'TRUNCATE of % is refused', TG_TABLE_NAME
      USING ERRCODE = '42501', HINT = 'the counters would not learn of it; jobs are cancelled, dead letters closed';
  ELSIF TG_TABLE_NAME = 'job_queue' THEN
    RAISE EXCEPTION 'job % may not go from % to % this way', OLD.job_id, OLD.status, NEW.status
      USING ERRCODE = '42501', HINT = 'the fn_job_ functions move jobs; what a job is never changes';
  END IF;
  RAISE EXCEPTION '% of % is refused', TG_OP, TG_TABLE_NAME
    USING ERRCODE = '42501', HINT = 'finished jobs are only ever cleaned, dead letters only ever closed and reopened';
END $$;
REVOKE ALL ON FUNCTION public.fn_job_refuse() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_refuse() IS 'Trigger: refuses a change outside the state machine of jobs.';

CREATE TRIGGER trg_job_queue_born BEFORE INSERT ON public.job_queue FOR EACH ROW
  WHEN (NEW.status <> 'queued') EXECUTE FUNCTION public.fn_job_refuse(); -- the rest of it: fn_job_queue_counted
CREATE TRIGGER trg_job_queue_fixed BEFORE UPDATE OF job_id, job_kind, event_domain, executor, enqueued_at, max_attempts,
  idempotency_key ON public.job_queue FOR EACH ROW EXECUTE FUNCTION public.fn_job_refuse();
-- the first letter of the status before, by how much attempts grew, the first letter of the status after
CREATE TRIGGER trg_job_queue_edge BEFORE UPDATE OF status, attempts ON public.job_queue FOR EACH ROW
  WHEN (strpos('q0q l0l i0i r0r q0l r0l l0i l0q l1q l0r l1r i0q i1q i0r i1r',
    concat(left(OLD.status, 1), NEW.attempts - OLD.attempts, left(NEW.status, 1))) = 0)
  EXECUTE FUNCTION public.fn_job_refuse();
CREATE TRIGGER trg_job_queue_no_truncate BEFORE TRUNCATE ON public.job_queue
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_refuse();

CREATE TRIGGER trg_job_history_edge BEFORE UPDATE ON public.job_history FOR EACH ROW
  WHEN (NOT (NEW.status = 'cleaned' AND OLD.status <> 'cleaned' AND NEW.from_status = OLD.status
    AND (NEW.job_id, NEW.job_kind, NEW.event_domain, NEW.executor, NEW.priority, NEW.process_after, NEW.enqueued_at,
      NEW.finished_at, NEW.attempts, NEW.max_attempts, NEW.lost_leases)
      = (OLD.job_id, OLD.job_kind, OLD.event_domain, OLD.executor, OLD.priority, OLD.process_after, OLD.enqueued_at,
      OLD.finished_at, OLD.attempts, OLD.max_attempts, OLD.lost_leases)
    AND (NEW.picked_at, NEW.lease_owner, NEW.lease_token, NEW.idempotency_key, NEW.failure_code, NEW.actor,
      NEW.correlation_id, NEW.causation_event_id) IS NOT DISTINCT FROM (OLD.picked_at, OLD.lease_owner, OLD.lease_token,
      OLD.idempotency_key, OLD.failure_code, OLD.actor, OLD.correlation_id, OLD.causation_event_id)))
  EXECUTE FUNCTION public.fn_job_refuse();
CREATE FUNCTION public.fn_job_history_empty() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NEW.payload <> '{}' OR num_nonnulls(NEW.source_ref, NEW.target_ref, NEW.payload_ref, NEW.last_error) > 0 THEN
    RAISE EXCEPTION 'job % is cleaned and not empty', NEW.job_id USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_history_empty() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_history_empty() IS 'Trigger: a cleaned job holds neither payload nor references nor what was said.';
CREATE TRIGGER trg_job_history_empty AFTER INSERT OR UPDATE ON public.job_history FOR EACH ROW
  WHEN (NEW.status = 'cleaned') EXECUTE FUNCTION public.fn_job_history_empty();
CREATE TRIGGER trg_job_history_no_delete BEFORE DELETE ON public.job_history
  FOR EACH ROW EXECUTE FUNCTION public.fn_job_refuse();
CREATE TRIGGER trg_job_history_no_truncate BEFORE TRUNCATE ON public.job_history
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();

CREATE FUNCTION public.fn_job_letter_edge() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_stack text;
BEGIN
  GET DIAGNOSTICS v_stack = PG_CONTEXT;
  IF OLD.triage_status = 'replayed' AND NEW.triage_status = 'open'
    AND strpos(v_stack, 'fn_job_dead_letter_replay_undo(uuid[],text,text,boolean)') > 0 THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION '% of % is refused', TG_OP, TG_TABLE_NAME
    USING ERRCODE = '42501', HINT = 'dead letters are only ever closed and reopened, a replayed one only by recalling its job';
END $$;
REVOKE ALL ON FUNCTION public.fn_job_letter_edge() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_letter_edge() IS 'Trigger: a replayed job dead letter opens again only when its job is recalled.';
CREATE TRIGGER trg_job_dead_letter_edge BEFORE UPDATE ON public.job_dead_letter FOR EACH ROW
  WHEN (NOT (OLD.triage_status <> 'replayed' AND (OLD.triage_status = 'open') <> (NEW.triage_status = 'open')
    AND (NEW.dead_letter_id, NEW.job_id, NEW.job_kind, NEW.event_domain, NEW.executor, NEW.attempts, NEW.failure_code,
      NEW.payload, NEW.priority, NEW.max_attempts, NEW.first_failed_at, NEW.last_failed_at)
      = (OLD.dead_letter_id, OLD.job_id, OLD.job_kind, OLD.event_domain, OLD.executor, OLD.attempts, OLD.failure_code,
      OLD.payload, OLD.priority, OLD.max_attempts, OLD.first_failed_at, OLD.last_failed_at)
    AND (NEW.last_error, NEW.source_ref, NEW.target_ref, NEW.payload_ref, NEW.correlation_id, NEW.causation_event_id)
      IS NOT DISTINCT FROM (OLD.last_error, OLD.source_ref, OLD.target_ref, OLD.payload_ref, OLD.correlation_id, OLD.causation_event_id)))
  EXECUTE FUNCTION public.fn_job_letter_edge();
CREATE TRIGGER trg_job_dead_letter_no_delete BEFORE DELETE ON public.job_dead_letter
  FOR EACH ROW EXECUTE FUNCTION public.fn_job_refuse();
CREATE TRIGGER trg_job_dead_letter_no_truncate BEFORE TRUNCATE ON public.job_dead_letter
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_refuse();

-- ---------------------------------------------------------------------------------------------------
-- After the fact, once per statement: counters, lanes, the wake. Counter job: kind, domain, status, where
-- scheduled means queued and not ready. Buckets (k3) are the epoch of the bucket's start; few and wide per lane,
-- because a refresh reads them all.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_job_queue_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_kind text;
  v_domain text;
  v_status text;
  v_n bigint := 1;
  v_several boolean;
  v_plain boolean;
  v_open boolean;
  v_used boolean;
  v_late boolean;
  v_five text;
  v_stack text;
BEGIN
  IF TG_OP = 'INSERT' THEN
    -- mostly it is one row, queued and ready or rightly not, or several of one lane: then cheap statements do
    SELECT r.job_kind, r.event_domain, CASE WHEN r.ready THEN 'queued' ELSE 'scheduled' END, EXISTS (SELECT FROM new_rows OFFSET 1),
      r.attempts = 0 AND r.lost_leases = 0 AND r.prior_token IS NULL AND NOT (r.ready AND r.process_after > now()),
      EXISTS (SELECT FROM public.job_lane l WHERE l.event_domain = r.event_domain AND l.job_kind = r.job_kind),
      date_part('epoch', date_bin('5 minutes', now(), timestamptz 'epoch'))::bigint
    INTO v_kind, v_domain, v_status, v_several, v_plain, v_open, v_five FROM new_rows r;
    IF v_several THEN
      SELECT count(*), bool_and(r.job_kind = v_kind AND r.event_domain = v_domain AND r.ready = (v_status = 'queued')
        AND r.attempts = 0 AND r.lost_leases = 0 AND r.prior_token IS NULL AND NOT (r.ready AND r.process_after > now()))
      INTO v_n, v_plain FROM new_rows r;
    END IF;
    IF v_plain THEN
      INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
      VALUES ('job', v_kind, v_domain, v_status, v_n), ('job_in_5m', v_kind, v_domain, v_five, v_n);
      IF NOT v_open THEN
        INSERT INTO public.job_lane (event_domain, job_kind) VALUES (v_domain, v_kind);
      END IF;
      RETURN NULL;
    END IF;
    SELECT bool_or(r.attempts <> 0 OR r.lost_leases <> 0 OR r.prior_token IS NOT NULL), bool_or(r.ready AND r.process_after > now())
    INTO v_used, v_late FROM new_rows r;
    IF v_used THEN
      RAISE EXCEPTION 'a job is born queued, unleased, with no attempts' USING ERRCODE = '42501';
    ELSIF v_late THEN
      -- the functions know what is due later; this is for who inserts by hand. The update counts itself.
      UPDATE public.job_queue q SET ready = false FROM new_rows r
      WHERE q.job_id = r.job_id AND r.ready AND r.process_after > now();
    END IF;
    WITH a AS MATERIALIZED (
      SELECT job_kind, event_domain, ready, count(*) AS n FROM new_rows GROUP BY 1, 2, 3
    ), lanes AS (
      INSERT INTO public.job_lane (event_domain, job_kind)
      SELECT DISTINCT a.event_domain, a.job_kind FROM a
      WHERE NOT EXISTS (SELECT 1 FROM public.job_lane l WHERE l.event_domain = a.event_domain AND l.job_kind = a.job_kind)
    )
    INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
    SELECT 'job', job_kind, event_domain, CASE WHEN ready THEN 'queued' ELSE 'scheduled' END, n FROM a
    UNION ALL SELECT 'job_in_5m', job_kind, event_domain, v_five, sum(n) FROM a GROUP BY 1, 2, 3;
  ELSIF TG_OP = 'UPDATE' THEN
    INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
    SELECT 'job', x.job_kind, x.event_domain, x.status, sum(x.n) FROM (
      SELECT job_kind, event_domain, CASE WHEN status = 'queued' AND NOT ready THEN 'scheduled' ELSE status END AS status,
        -1 AS n FROM old_rows
      UNION ALL
      SELECT job_kind, event_domain, CASE WHEN status = 'queued' AND NOT ready THEN 'scheduled' ELSE status END, 1 FROM new_rows) x
    GROUP BY 2, 3, 4 HAVING sum(x.n) <> 0;
  ELSE
    GET DIAGNOSTICS v_stack = PG_CONTEXT;
    -- whole signatures: the words around them are in the language of the server
    IF NOT (strpos(v_stack, 'fn_job_ack(uuid[],uuid[])') > 0
      OR strpos(v_stack, 'fn_job_bury(uuid[],text[],text[],text[],integer)') > 0
      OR strpos(v_stack, 'fn_job_cancel(uuid[],text,text,boolean)') > 0
      OR strpos(v_stack, 'fn_job_dead_letter_replay_undo(uuid[],text,text,boolean)') > 0) THEN
      RAISE EXCEPTION 'DELETE of job_queue is refused: a job ends through the fn_job_ functions' USING ERRCODE = '42501';
    END IF;
    INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
    SELECT 'job', job_kind, event_domain, CASE WHEN status = 'queued' AND NOT ready THEN 'scheduled' ELSE status END, -count(*)
    FROM old_rows GROUP BY 1, 2, 3, 4;
  END IF;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_queue_counted() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_queue_counted() IS
  'Trigger: counters job and job_in_5m, lanes; a job is born without a past, not ready when it is due later, and leaves the '
  'queue only inside a fn_job_ function.';
CREATE TRIGGER trg_job_queue_inserted AFTER INSERT ON public.job_queue
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_queue_counted();
CREATE TRIGGER trg_job_queue_updated AFTER UPDATE ON public.job_queue
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_queue_counted();
CREATE TRIGGER trg_job_queue_deleted AFTER DELETE ON public.job_queue
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_queue_counted();

CREATE FUNCTION public.fn_job_history_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_now bigint := floor(date_part('epoch', now()));
  v_kind text;
  v_domain text;
  v_status text;
  v_n bigint := 1;
  v_several boolean;
  v_alike boolean := true;
BEGIN
  SELECT r.job_kind, r.event_domain, r.status, EXISTS (SELECT FROM new_rows OFFSET 1)
  INTO v_kind, v_domain, v_status, v_several FROM new_rows r;
  IF v_several THEN
    SELECT count(*), bool_and(r.job_kind = v_kind AND r.event_domain = v_domain AND r.status = v_status) INTO v_n, v_alike FROM new_rows r;
  END IF;
  IF v_kind IS NULL THEN
    RETURN NULL; -- no row
  ELSIF v_alike THEN -- mostly
    INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
    VALUES ('job', v_kind, v_domain, v_status, v_n),
      ('job_' || v_status || '_10m', v_kind, v_domain, (v_now - v_now % 600)::text, v_n),
      ('job_out_5m', v_kind, v_domain, (v_now - v_now % 300)::text, v_n),
      ('job_done_1m', '', '', (v_now - v_now % 60)::text, v_n);
    RETURN NULL;
  END IF;
  INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
  WITH a AS MATERIALIZED (SELECT job_kind, event_domain, status, count(*) AS n FROM new_rows GROUP BY 1, 2, 3)
  SELECT 'job', job_kind, event_domain, status, n FROM a
  UNION ALL SELECT 'job_' || status || '_10m', job_kind, event_domain, (v_now - v_now % 600)::text, n FROM a
  UNION ALL SELECT 'job_out_5m', job_kind, event_domain, (v_now - v_now % 300)::text, sum(n) FROM a GROUP BY 2, 3
  UNION ALL SELECT 'job_done_1m', '', '', (v_now - v_now % 60)::text, sum(n) FROM a;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_history_counted() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_history_counted() IS 'Trigger: counters of finished jobs: job, job_<status>_10m, job_out_5m, job_done_1m.';
CREATE TRIGGER trg_job_history_inserted AFTER INSERT ON public.job_history
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_history_counted();

CREATE FUNCTION public.fn_job_cleaned_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
  SELECT 'job', job_kind, event_domain, status, sum(n) FROM (
    SELECT job_kind, event_domain, status, -count(*) AS n FROM old_rows GROUP BY 1, 2, 3
    UNION ALL SELECT job_kind, event_domain, status, count(*) FROM new_rows GROUP BY 1, 2, 3) x
  GROUP BY 1, 2, 3, 4 HAVING sum(n) <> 0;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_cleaned_counted() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_cleaned_counted() IS 'Trigger: counter job when finished jobs are cleaned.';
CREATE TRIGGER trg_job_history_cleaned AFTER UPDATE ON public.job_history
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_cleaned_counted();

-- Counter dead_job: code, kind, domain of the open ones; dead_job_5m: code, domain/kind, bucket of five minutes;
-- dead_1m: with the webhooks' dead ones.
CREATE FUNCTION public.fn_job_letter_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
    SELECT 'dead_job', failure_code, job_kind, event_domain, count(*) FROM new_rows WHERE resolved_at IS NULL GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'dead_job_5m', failure_code, event_domain || '/' || job_kind,
      (floor(extract(epoch FROM last_failed_at) / 300) * 300)::bigint::text, count(*) FROM new_rows GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'dead_1m', '', '', (floor(extract(epoch FROM now()) / 60) * 60)::bigint::text, count(*) FROM new_rows HAVING count(*) > 0;
  ELSE
    INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
    SELECT 'dead_job', failure_code, job_kind, event_domain, sum(n) FROM (
      SELECT failure_code, job_kind, event_domain, -count(*) AS n FROM old_rows WHERE resolved_at IS NULL GROUP BY 1, 2, 3
      UNION ALL
      SELECT failure_code, job_kind, event_domain, count(*) FROM new_rows WHERE resolved_at IS NULL GROUP BY 1, 2, 3) x
    GROUP BY 2, 3, 4 HAVING sum(n) <> 0;
  END IF;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION public.fn_job_letter_counted() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_job_letter_counted() IS 'Trigger: counters dead_job, dead_job_5m and dead_1m.';
CREATE TRIGGER trg_job_dead_letter_born AFTER INSERT ON public.job_dead_letter
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_letter_counted();
CREATE TRIGGER trg_job_dead_letter_closed AFTER UPDATE ON public.job_dead_letter
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_letter_counted();

-- One signal per channel and statement; the definer function reads the flag, for a WHEN clause would run
-- with the writer's rights (DP4 §3.2).
CREATE FUNCTION public.fn_queue_wake_notify_job_queue() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF current_setting('qtop.doorbell', true) = 'on' THEN
    RETURN NULL;
  END IF;
  BEGIN -- a block that catches is a subtransaction
    IF NOT public.fn_queue_notify_enabled() OR pg_notification_queue_usage() > 0.5 THEN
      RETURN NULL;
    END IF;
    -- the CHECKs of job_lane keep channel and payload within their bounds
    PERFORM pg_notify('queue_wake_' || x.event_domain, jsonb_build_object(
      'layer', 'job', 'job_id', x.job_id, 'job_kind', x.job_kind, 'process_after', x.process_after,
      'worker_hint', 'job_executor', 'count', x.n_rows)::text)
    FROM (SELECT d.event_domain, d.n_rows, d.process_after, f.job_id, f.job_kind
      FROM (SELECT n.event_domain, count(*) AS n_rows, min(n.process_after) AS process_after FROM new_rows n GROUP BY 1) d
      CROSS JOIN LATERAL (SELECT n.job_id, n.job_kind FROM new_rows n
        WHERE n.event_domain = d.event_domain AND n.process_after = d.process_after LIMIT 1) f) x;
  EXCEPTION WHEN OTHERS THEN
    NULL;
  END;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION public.fn_queue_wake_notify_job_queue() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_queue_wake_notify_job_queue() IS
  'Trigger: wakes the listeners of each domain a statement put jobs into, when the bridge is on (DP4 §3.2).';
CREATE TRIGGER trg_job_queue_wake_notify AFTER INSERT ON public.job_queue
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_queue_wake_notify_job_queue();

-- ---------------------------------------------------------------------------------------------------
-- Grants: everything but payloads is there to be seen; writing goes through the functions.
-- ---------------------------------------------------------------------------------------------------
GRANT SELECT (job_id, job_kind, event_domain, executor, status, ready, priority, process_after, enqueued_at, picked_at,
  finished_at, lease_owner, lease_until, lease_token, attempts, max_attempts, lost_leases, idempotency_key, source_ref, target_ref,
  payload_ref, last_error, failure_code, first_failed_at, actor, correlation_id, causation_event_id, updated_at)
  ON public.job_queue, public.job_history, public.v_job TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;
GRANT SELECT (from_status) ON public.job_history, public.v_job TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;
GRANT SELECT (dead_letter_id, job_id, job_kind, event_domain, executor, attempts, failure_code, last_error, priority,
  max_attempts, source_ref, target_ref, payload_ref, correlation_id, causation_event_id, first_failed_at, last_failed_at, triage_status, triage_note, resolved_at, resolved_by, resolution, replayed_job_id)
  ON public.job_dead_letter TO queue_viewer, workflow_admin, dead_letter_operator;
GRANT SELECT ON public.job_lease, public.job_lane, public.job_subscription, public.executor_producer
  TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;
GRANT INSERT, UPDATE ON public.job_subscription TO workflow_admin;

INSERT INTO public.queue_partitioned VALUES ('job_history', 'finished_at', 'day', '35 days');
SELECT public.fn_queue_partitions_ensure();

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
DELETE FROM public.queue_partitioned WHERE parent = 'job_history';
DROP TABLE public.executor_producer;
DROP TABLE public.job_subscription;
DROP VIEW public.v_job;
DROP TABLE public.job_dead_letter;
DROP TABLE public.job_lane;
DROP TABLE public.job_lease;
DROP TABLE public.job_history;
DROP TABLE public.job_queue;
DROP DOMAIN public.job_state, public.job_count, public.job_executor, public.job_max_attempts, public.job_idempotency_key,
  public.job_payload, public.job_error, public.job_failure_code, public.job_prior_result, public.job_end;
DROP FUNCTION public.fn_queue_wake_notify_job_queue();
DROP FUNCTION public.fn_job_letter_counted();
DROP FUNCTION public.fn_job_cleaned_counted();
DROP FUNCTION public.fn_job_history_counted();
DROP FUNCTION public.fn_job_queue_counted();
DROP FUNCTION public.fn_job_history_empty();
DROP FUNCTION public.fn_job_letter_edge();
DROP FUNCTION public.fn_job_refuse();
RESET ROLE;
