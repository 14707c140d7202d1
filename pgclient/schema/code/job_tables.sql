-- Jobs: domains, tables, and the triggers that enforce the state machine for every role.
-- Sources: DP1, DP4 §3.2, DP6 §3.3–3.5.

COMMENT ON DOMAIN public.job_state IS
  'Checks a row of job_queue: how many of its three lease columns are set (0 or 3), then its status, such as 3leased.';

COMMENT ON DOMAIN public.job_count IS 'A count, 0 or more.';

COMMENT ON DOMAIN public.job_executor IS 'An executor kind.';

COMMENT ON DOMAIN public.job_max_attempts IS 'How many attempts a job has, 1 to 1000.';

COMMENT ON DOMAIN public.job_idempotency_key IS 'Identifies a job for its producer, 1 to 500 characters.';

COMMENT ON DOMAIN public.job_payload IS 'A JSON object with references to content, not content itself.';

COMMENT ON DOMAIN public.job_error IS 'The error text of a handler, up to 4,096 bytes.';

COMMENT ON DOMAIN public.job_failure_code IS 'Why a job failed, as one upper-case word.';

COMMENT ON DOMAIN public.job_prior_result IS
  'How the last attempt ended without finishing the job: failed or released.';

COMMENT ON DOMAIN public.job_end IS
  'An allowed change of status of a finished job, as status before > status after.';

COMMENT ON TABLE public.job_queue IS
  'Jobs that are not finished: queued, leased, in_progress or retry_waiting. Written by the fn_job_ functions '
  'alone.';
COMMENT ON COLUMN public.job_queue.ready IS 'false = due later or waiting for a retry; not a status';
COMMENT ON COLUMN public.job_queue.priority IS 'higher is claimed first';
COMMENT ON COLUMN public.job_queue.attempts IS 'finished attempts; a claim adds none';
COMMENT ON COLUMN public.job_queue.lost_leases IS
  'the first costs no attempt, after that hosts run the job alone; the third makes it a dead letter';
COMMENT ON COLUMN public.job_queue.lease_token IS
  'fences every result; lease_owner, lease_until and lease_token are all set or all null';
COMMENT ON COLUMN public.job_queue.idempotency_key IS
  'the producer''s key. A replay, a key that a live job of another scope has, and a key that begins with route: or '
  'replay: are stored as another text, which ends with the job id';
-- Grants: everything except payloads and lease tokens can be read; only the functions write. A token authorises
-- results, so readers see only the public id of a lease, in v_job, v_job_lease and v_leased_job.
GRANT SELECT (job_id, job_kind, event_domain, executor, status, ready, priority, process_after, enqueued_at, picked_at,
  finished_at, lease_owner, lease_until, attempts, max_attempts, lost_leases, idempotency_key, source_ref, target_ref,
  payload_ref, last_error, failure_code, first_failed_at, actor, correlation_id, causation_event_id, updated_at)
  ON public.job_queue, public.job_history, public.v_job TO :"queue_viewer", :"dot_executor", :"workflow_admin",
    :"dead_letter_operator";

COMMENT ON TABLE public.job_history IS
  'Finished jobs, append-only, partitioned by day: succeeded, failed, dead_letter, cancelled, cleaned. from_status: '
  'the status before.';
COMMENT ON COLUMN public.job_history.status IS 'succeeded, failed, dead_letter, cancelled, cleaned';
COMMENT ON COLUMN public.job_history.from_status IS 'the status before; of a cleaned job: how it had finished';
GRANT SELECT (from_status) ON public.job_history, public.v_job TO :"queue_viewer", :"dot_executor",
  :"workflow_admin", :"dead_letter_operator";
GRANT SELECT (lease_id, lease_token) ON public.v_job TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

COMMENT ON TABLE public.job_lease IS
  'One row per claim: who holds which jobs until when; live = how many are still held. The reaper and max_parallel '
  'read only this table.';
COMMENT ON COLUMN public.job_lease.lease_until IS 'after this the reaper returns its jobs to the queue';
COMMENT ON COLUMN public.job_lease.live IS 'jobs of the claim that are still leased';
GRANT SELECT (lease_owner, subscription_id, claimed_at, lease_until, job_ids, live) ON public.job_lease
  TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";
GRANT SELECT ON public.job_lane, public.job_subscription, public.executor_producer
  TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

COMMENT ON TABLE public.job_lane IS
  'The queue lanes: each domain and kind that ever had a job, so that a claim need not search the queue for them.';

COMMENT ON TABLE public.job_dead_letter IS
  'Jobs that failed for good, with all that a replay needs: an open dead letter outlives the history of its job. '
  'Replayed at most once, into a new job with a new key.';
COMMENT ON COLUMN public.job_dead_letter.triage_status IS 'open, replayed, abandoned, done_otherwise, duplicate';
COMMENT ON COLUMN public.job_dead_letter.replayed_job_id IS 'the new job, when replayed';
GRANT SELECT (dead_letter_id, job_id, job_kind, event_domain, executor, attempts, failure_code, last_error, priority,
  max_attempts, source_ref, target_ref, payload_ref, correlation_id, causation_event_id, first_failed_at,
    last_failed_at, triage_status, triage_note, resolved_at, resolved_by, resolution, replayed_job_id)
  ON public.job_dead_letter TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";

CREATE OR REPLACE VIEW public.v_job AS
SELECT job_id, job_kind, event_domain, executor, status, ready, priority, process_after, enqueued_at, picked_at,
  finished_at,
  lease_owner, lease_until, left(encode(sha256(uuid_send(lease_token)), 'hex'), 32)::uuid AS lease_token,
  attempts, max_attempts, lost_leases, idempotency_key, source_ref, target_ref,
  payload_ref, payload, last_error, failure_code, first_failed_at, actor, correlation_id, causation_event_id,
    updated_at,
  NULL::text AS from_status,
  left(encode(sha256(uuid_send(lease_token)), 'hex'), 32)::uuid AS lease_id
FROM public.job_queue
UNION ALL
SELECT job_id, job_kind, event_domain, executor, status, ready, priority, process_after, enqueued_at, picked_at,
  finished_at,
  lease_owner, lease_until, left(encode(sha256(uuid_send(lease_token)), 'hex'), 32)::uuid AS lease_token,
  attempts, max_attempts, lost_leases, idempotency_key, source_ref, target_ref,
  payload_ref, payload, last_error, failure_code, first_failed_at, actor, correlation_id, causation_event_id,
    updated_at,
  from_status,
  left(encode(sha256(uuid_send(lease_token)), 'hex'), 32)::uuid
FROM public.job_history;
COMMENT ON VIEW public.v_job IS
  'All jobs, live and finished. Look one up by job_id; do not count all of them.';
COMMENT ON COLUMN public.v_job.status IS
  'live: queued, leased, in_progress, retry_waiting; final: succeeded, failed, dead_letter, cancelled, cleaned';
COMMENT ON COLUMN public.v_job.ready IS 'false = due later or waiting for a retry; not a status';
COMMENT ON COLUMN public.v_job.priority IS 'higher is claimed first';
COMMENT ON COLUMN public.v_job.attempts IS 'finished attempts; a claim adds none';
COMMENT ON COLUMN public.v_job.lease_id IS 'public id of its lease; no result can be recorded with it';
COMMENT ON COLUMN public.v_job.lease_token IS 'retired: holds lease_id, for programs of the previous release';
COMMENT ON COLUMN public.v_job.from_status IS 'of a finished job: the status before';

-- v_job_lease: leases for readers, who may not see tokens. The public id of a lease is a hash of its token, so that it
-- needs no column, and leases made before the upgrade have one too.
CREATE OR REPLACE VIEW public.v_job_lease AS
SELECT left(encode(sha256(uuid_send(lease_token)), 'hex'), 32)::uuid AS lease_id, lease_owner, subscription_id,
  claimed_at, lease_until, job_ids, live
FROM public.job_lease;
COMMENT ON VIEW public.v_job_lease IS 'job_lease with the public id of each lease instead of its token.';
COMMENT ON COLUMN public.v_job_lease.lease_id IS 'argument of qtop lease release; no result can be recorded with it';
COMMENT ON COLUMN public.v_job_lease.live IS 'jobs of the claim that are still leased';
GRANT SELECT ON public.v_job_lease TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

CREATE OR REPLACE VIEW public.v_leased_job AS
SELECT job_id, left(encode(sha256(uuid_send(lease_token)), 'hex'), 32)::uuid AS lease_id
FROM public.job_queue WHERE lease_token IS NOT NULL;
COMMENT ON VIEW public.v_leased_job IS 'Leased jobs with the public id of their lease. Look one up by job_id.';
COMMENT ON COLUMN public.v_leased_job.lease_id IS
  'argument of qtop lease release; no result can be recorded with it';
GRANT SELECT ON public.v_leased_job TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

-- Guards: the triggers below refuse changes outside the state machine. The allowed changes are in the WHEN of each
-- trigger, so that an allowed change costs no function call. Every statement on the table parses its WHENs and CHECKs,
-- so they are kept short.
CREATE OR REPLACE FUNCTION public.fn_job_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    RAISE EXCEPTION 'a new job must be queued, without a lease and without attempts'
      USING ERRCODE = '42501', HINT = 'enqueue with fn_job_enqueue';
  ELSIF TG_OP = 'TRUNCATE' THEN
    RAISE EXCEPTION 'TRUNCATE of % is refused', TG_TABLE_NAME
      USING ERRCODE = '42501',
        HINT = 'the counters would not notice it; cancel the jobs or resolve the dead letters instead';
  ELSIF TG_TABLE_NAME = 'job_queue' THEN
    RAISE EXCEPTION 'this UPDATE of job % (status % to %) is refused', OLD.job_id, OLD.status, NEW.status
      USING ERRCODE = '42501', HINT = 'change jobs with the fn_job_ functions; id, kind, domain, executor, key, '
        'enqueued_at and max_attempts of a job never change';
  END IF;
  RAISE EXCEPTION '% of % is refused', TG_OP, TG_TABLE_NAME
    USING ERRCODE = '42501', HINT = 'a finished job is only emptied by retention, a dead letter only replayed, '
      'resolved or reopened: use the fn_job_ functions or qtop';
END $$;
COMMENT ON FUNCTION public.fn_job_refuse IS
  'Trigger: refuses a change outside the state machine of jobs.';

CREATE OR REPLACE TRIGGER trg_job_queue_born BEFORE INSERT ON public.job_queue FOR EACH ROW
  WHEN (NEW.status <> 'queued') EXECUTE FUNCTION public.fn_job_refuse();

 -- fn_job_queue_counted checks the other columns
CREATE OR REPLACE TRIGGER trg_job_queue_fixed BEFORE UPDATE OF job_id, job_kind, event_domain, executor, enqueued_at,
  max_attempts,
  idempotency_key ON public.job_queue FOR EACH ROW EXECUTE FUNCTION public.fn_job_refuse();

-- each entry: initial of the status before, increase of attempts, initial of the status after
CREATE OR REPLACE TRIGGER trg_job_queue_edge BEFORE UPDATE OF status, attempts ON public.job_queue FOR EACH ROW
  WHEN (strpos('q0q l0l i0i r0r q0l r0l l0i l0q l1q l0r l1r i0q i1q i0r i1r',
    concat(left(OLD.status, 1), NEW.attempts - OLD.attempts, left(NEW.status, 1))) = 0)
  EXECUTE FUNCTION public.fn_job_refuse();
CREATE OR REPLACE TRIGGER trg_job_queue_no_truncate BEFORE TRUNCATE ON public.job_queue
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_refuse();
CREATE OR REPLACE TRIGGER trg_job_history_edge BEFORE UPDATE ON public.job_history FOR EACH ROW
  WHEN (NOT (NEW.status = 'cleaned' AND OLD.status <> 'cleaned' AND NEW.from_status = OLD.status
    AND (NEW.job_id, NEW.job_kind, NEW.event_domain, NEW.executor, NEW.priority, NEW.process_after, NEW.enqueued_at,
      NEW.finished_at, NEW.attempts, NEW.max_attempts, NEW.lost_leases)
      = (OLD.job_id, OLD.job_kind, OLD.event_domain, OLD.executor, OLD.priority, OLD.process_after, OLD.enqueued_at,
      OLD.finished_at, OLD.attempts, OLD.max_attempts, OLD.lost_leases)
    AND (NEW.picked_at, NEW.lease_owner, NEW.lease_token, NEW.idempotency_key, NEW.failure_code, NEW.actor,
      NEW.correlation_id, NEW.causation_event_id) IS NOT DISTINCT FROM (OLD.picked_at, OLD.lease_owner, OLD.lease_token,
      OLD.idempotency_key, OLD.failure_code, OLD.actor, OLD.correlation_id, OLD.causation_event_id)))
  EXECUTE FUNCTION public.fn_job_refuse();

CREATE OR REPLACE FUNCTION public.fn_job_history_empty() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NEW.payload <> '{}' OR num_nonnulls(NEW.source_ref, NEW.target_ref, NEW.payload_ref, NEW.last_error) > 0 THEN
    RAISE EXCEPTION 'job % has the status cleaned, but still has a payload, references or an error text', NEW.job_id
      USING ERRCODE = 'check_violation', HINT = 'the retention sweep empties finished jobs';
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_job_history_empty IS
  'Trigger: a cleaned job holds no payload, references or error text.';

CREATE OR REPLACE TRIGGER trg_job_history_empty AFTER INSERT OR UPDATE ON public.job_history FOR EACH ROW
  WHEN (NEW.status = 'cleaned') EXECUTE FUNCTION public.fn_job_history_empty();
CREATE OR REPLACE TRIGGER trg_job_history_no_delete BEFORE DELETE ON public.job_history
  FOR EACH ROW EXECUTE FUNCTION public.fn_job_refuse();
CREATE OR REPLACE TRIGGER trg_job_history_no_truncate BEFORE TRUNCATE ON public.job_history
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();

CREATE OR REPLACE FUNCTION public.fn_job_letter_edge() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_stack text;
BEGIN
  GET DIAGNOSTICS v_stack = PG_CONTEXT;
  v_stack := replace(v_stack, '"', ''); -- present if quote_all_identifiers is on
  IF OLD.triage_status = 'replayed' AND NEW.triage_status = 'open'
    AND strpos(v_stack, 'fn_job_dead_letter_replay_undo_as(uuid[],text,text,boolean,bigint)') > 0 THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION '% of % is refused', TG_OP, TG_TABLE_NAME
    USING ERRCODE = '42501',
      HINT = 'a replayed dead letter is opened again only by undoing its replay (fn_job_dead_letter_replay_undo)';
END $$;
COMMENT ON FUNCTION public.fn_job_letter_edge IS
  'Trigger: a replayed job dead letter is reopened only when its replay is undone.';

CREATE OR REPLACE TRIGGER trg_job_dead_letter_edge BEFORE UPDATE ON public.job_dead_letter FOR EACH ROW
  WHEN (NOT (OLD.triage_status <> 'replayed' AND (OLD.triage_status = 'open') <> (NEW.triage_status = 'open')
    AND (NEW.dead_letter_id, NEW.job_id, NEW.job_kind, NEW.event_domain, NEW.executor, NEW.attempts, NEW.failure_code,
      NEW.payload, NEW.priority, NEW.max_attempts, NEW.first_failed_at, NEW.last_failed_at)
      = (OLD.dead_letter_id, OLD.job_id, OLD.job_kind, OLD.event_domain, OLD.executor, OLD.attempts, OLD.failure_code,
      OLD.payload, OLD.priority, OLD.max_attempts, OLD.first_failed_at, OLD.last_failed_at)
    AND (NEW.last_error, NEW.source_ref, NEW.target_ref, NEW.payload_ref, NEW.correlation_id, NEW.causation_event_id)
      IS NOT DISTINCT FROM (OLD.last_error, OLD.source_ref, OLD.target_ref, OLD.payload_ref, OLD.correlation_id,
        OLD.causation_event_id)))
  EXECUTE FUNCTION public.fn_job_letter_edge();
CREATE OR REPLACE TRIGGER trg_job_dead_letter_no_truncate BEFORE TRUNCATE ON public.job_dead_letter
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_refuse();
