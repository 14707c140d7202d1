-- Webhooks: the allowed values of the tables, and the changes that no role may make. Source: R02.

COMMENT ON TABLE public.events IS
  'Business events to deliver by webhook (R02). Append-only, except for retention and erasure.';
COMMENT ON COLUMN public.events.external_event_id IS 'the producer''s id of the event; unique when given';
-- a producer can find its events again, but cannot read payloads
GRANT INSERT (external_event_id, event_type, payload, created_at, created_xid) ON public.events
  TO :"event_ingest_writer"; -- not the id: a chosen id could make inserts of other producers fail
GRANT SELECT (id, external_event_id) ON public.events TO :"event_ingest_writer";
GRANT SELECT ON public.events, public.subscriptions TO :"router_worker", :"saga_orchestrator", :"webhook_worker";
GRANT SELECT ON public.events, public.subscriptions, public.webhook_endpoint_suspensions,
  public.webhook_endpoint_state, public.webhook_rate_bucket, public.router_offsets,
  public.webhook_delivery_sagas, public.dead_letters, public.dead_letter_requeues,
  public.dead_letter_resolutions, public.dead_letter_open
  TO :"dead_letter_operator";
GRANT SELECT (id, external_event_id, event_type, created_at, created_xid) ON public.events TO :"queue_viewer";

COMMENT ON TABLE public.subscriptions IS
  'Webhook subscriptions: which event type is sent to which URL. Only active and verified ones get sagas (R02).';
COMMENT ON COLUMN public.subscriptions.active IS
  'switched on; only active and verified webhook subscriptions get deliveries';
COMMENT ON COLUMN public.subscriptions.secret_ref IS 'names a secret that hosts hold; NULL = unsigned';
COMMENT ON COLUMN public.subscriptions.max_attempts IS 'NULL = the flag webhook.max_attempts';
COMMENT ON COLUMN public.subscriptions.rate_limit_per_second IS 'NULL = no limit';
COMMENT ON COLUMN public.subscriptions.created_xid IS 'the transaction that wrote it first: see v_webhook_recipient';
GRANT SELECT, INSERT, UPDATE ON public.subscriptions TO :"subscription_admin";
GRANT SELECT ON public.webhook_endpoint_suspensions, public.webhook_endpoint_state,
  public.webhook_rate_bucket, public.router_offsets, public.webhook_delivery_sagas,
  public.dead_letter_requeues, public.dead_letter_resolutions, public.dead_letter_open TO :"queue_viewer";
-- not the URL, whose path and query may hold the receiver's token: see fn_webhook_url
GRANT SELECT (id, event_type, active, verified, secret_ref, max_attempts, rate_limit_per_second, created_at, updated_at,
  endpoint, created_xid) ON public.subscriptions TO :"queue_viewer";

COMMENT ON TABLE public.webhook_endpoint_suspensions IS
  'Webhook subscriptions to which nothing is sent, and why. A circuit past its until is half-open: one probe at a '
  'time.';
COMMENT ON COLUMN public.webhook_endpoint_suspensions.reason IS
  '410, circuit, failing (only failures for webhook.disable_after_days) or operator';
COMMENT ON COLUMN public.webhook_endpoint_suspensions.failed_probes IS
  'probes of this circuit that failed; each doubles its duration';
COMMENT ON COLUMN public.webhook_endpoint_suspensions.until IS 'NULL = until an operator resumes it';

COMMENT ON TABLE public.webhook_endpoint_state IS
  'The latest results of each webhook subscription, by which its circuit opens and closes. last_success_at is exact to '
  'a second.';
COMMENT ON COLUMN public.webhook_endpoint_state.failing_since IS
  'since when all results are failures; NULL = the last result was a success';

COMMENT ON TABLE public.webhook_rate_bucket IS
  'Token bucket of each webhook subscription, used by the claims of all hosts together. Holds a quarter of a second of '
  'its rate, at least one request.';

COMMENT ON TABLE public.router_offsets IS
  'One row: totals of the webhook router; its position is in queue_cursor. last_*: the position in releases before '
  'queue_cursor.';
COMMENT ON COLUMN public.router_offsets.held_rows IS 'no longer used';
COMMENT ON COLUMN public.router_offsets.held_since IS 'no longer used';
COMMENT ON COLUMN public.router_offsets.restored_subscription_id IS
  'the highest id of a webhook subscription when the router first ran in this cluster; NULL = it was made here';
GRANT SELECT, INSERT, UPDATE ON public.router_offsets TO :"router_worker";

COMMENT ON TABLE public.webhook_delivery_sagas IS
  'One delivery of one event to one webhook subscription, over all its attempts (R02). Terminal rows never change.';
COMMENT ON COLUMN public.webhook_delivery_sagas.status IS
  'Pending, InProgress, PendingRetry, Completed, DeadLettered; the last two never change again';
COMMENT ON COLUMN public.webhook_delivery_sagas.attempt_count IS
  'settled failures, except for the first hundred answers 429';
COMMENT ON COLUMN public.webhook_delivery_sagas.next_attempt_at IS 'no attempt before this time';
COMMENT ON COLUMN public.webhook_delivery_sagas.requeue_generation IS '0 = the original saga; each requeue adds one';
COMMENT ON COLUMN public.webhook_delivery_sagas.webhook_id IS
  'header webhook-id of every attempt, inherited by requeues; NULL = qtop_<event>_<subscription>';
GRANT SELECT, INSERT ON public.webhook_delivery_sagas TO :"router_worker";
GRANT SELECT, UPDATE ON public.webhook_delivery_sagas TO :"saga_orchestrator";
GRANT SELECT ON public.webhook_delivery_sagas TO :"webhook_worker";

COMMENT ON TABLE public.webhook_delivery_jobs IS
  'One attempt of a saga: leased by a worker, finished once, settled once (R02). Settled rows never change.';
COMMENT ON COLUMN public.webhook_delivery_jobs.attempt_at IS 'when the job was made, not when it was sent';
COMMENT ON COLUMN public.webhook_delivery_jobs.response_status IS 'HTTP status; NULL = no answer';
COMMENT ON COLUMN public.webhook_delivery_jobs.attempt_no IS
  '1 is the first job of the saga; a job that was answered 429 may have cost no attempt';
COMMENT ON COLUMN public.webhook_delivery_jobs.controlled IS
  'true = claimed within the limits of a rate, a circuit or an operation; false = claimed oldest first';
COMMENT ON COLUMN public.webhook_delivery_jobs.operation_id IS
  'the bulk operation that requeued its delivery and at whose rate it is sent; NULL = none';
COMMENT ON COLUMN public.webhook_delivery_jobs.lease_resets IS 'lost leases; the third fails the job';
COMMENT ON COLUMN public.webhook_delivery_jobs.response_excerpt IS 'at most 4 KiB, masked';
COMMENT ON COLUMN public.webhook_delivery_jobs.settled_at IS
  'when the orchestrator settled the job: counted its result for the saga; NULL = not yet';
-- R02 §4 lets these roles read jobs: all columns except the lease token, which only the claim returns to its worker
GRANT INSERT, UPDATE ON public.webhook_delivery_jobs TO :"saga_orchestrator";
GRANT SELECT (id, saga_id, status, lease_until, attempt_at, response_status, error_code, attempt_no,
    subscription_id, controlled, operation_id, worker_id, lease_resets, retry_after_at, started_at, finished_at,
    took_ms, settled_at)
  ON public.webhook_delivery_jobs TO :"queue_viewer", :"saga_orchestrator", :"webhook_worker",
    :"dead_letter_operator";
GRANT SELECT (response_excerpt) ON public.webhook_delivery_jobs TO :"saga_orchestrator", :"webhook_worker",
  :"dead_letter_operator";

COMMENT ON TABLE public.dead_letters IS
  'Sagas that failed for good, with a full copy of the payload (R02 §3). Immutable, except for webhook_erasure.';
COMMENT ON COLUMN public.dead_letters.payload_snapshot IS 'a full copy of the event''s payload, never changed';
GRANT SELECT, INSERT ON public.dead_letters TO :"saga_orchestrator";
GRANT SELECT (id, saga_id, event_id, subscription_id, final_error_code, failed_at)
  ON public.dead_letters TO :"queue_viewer";

COMMENT ON TABLE public.dead_letter_requeues IS
  'Ensures that a dead letter is requeued once: its new saga, by whom and why (R02 §3.3).';

COMMENT ON TABLE public.dead_letter_resolutions IS
  'Dead letters closed without a requeue. Reopening removes the row; the audit has both.';

COMMENT ON TABLE public.dead_letter_open IS
  'Dead letters neither requeued nor resolved. Written only by triggers and fn_queue_recount.';

-- fn_webhook_immutable refuses UPDATE and DELETE for every role, including the owner, with two exceptions: an erasure
-- (the payload becomes {}, fn_webhook_event_erase) and the deletion of an event by retention.
CREATE OR REPLACE FUNCTION public.fn_webhook_immutable() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'DELETE'
    AND public.fn_called_from('fn_webhook_purge(bigint,timestamp with time zone,bigint[],bigint[])') THEN
    RETURN OLD;
  ELSIF TG_OP = 'UPDATE' AND TG_TABLE_NAME IN ('events', 'dead_letters')
    AND public.fn_called_from('fn_webhook_event_erase(bigint,text,text,boolean)') THEN
    RETURN NEW;
  ELSIF TG_TABLE_NAME = 'dead_letter_open' AND TG_OP <> 'TRUNCATE'
    AND public.fn_called_from('fn_queue_recount(text,text,boolean)') THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION '% of table % is refused: its rows never change', TG_OP, TG_TABLE_NAME
    USING ERRCODE = '42501', HINT = 'requeue, resolve or erase with qtop; retention deletes what is settled (R02 §3)';
END $$;
COMMENT ON FUNCTION public.fn_webhook_immutable IS
  'Trigger: refuses a change of an immutable webhook table (R02).';

CREATE OR REPLACE TRIGGER trg_events_immutable BEFORE UPDATE OR DELETE ON public.events
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_events_no_truncate BEFORE TRUNCATE ON public.events
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_subscriptions_no_truncate BEFORE TRUNCATE ON public.subscriptions
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_sagas_no_truncate BEFORE TRUNCATE ON public.webhook_delivery_sagas
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_jobs_no_delete BEFORE DELETE ON public.webhook_delivery_jobs
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_jobs_no_truncate BEFORE TRUNCATE ON public.webhook_delivery_jobs
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_dead_letters_immutable BEFORE UPDATE OR DELETE ON public.dead_letters
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_dead_letters_no_truncate BEFORE TRUNCATE ON public.dead_letters
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_requeues_immutable BEFORE UPDATE ON public.dead_letter_requeues
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_requeues_no_truncate BEFORE TRUNCATE ON public.dead_letter_requeues
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_resolutions_immutable BEFORE UPDATE ON public.dead_letter_resolutions
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_resolutions_no_truncate BEFORE TRUNCATE ON public.dead_letter_resolutions
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_dead_open_derived BEFORE INSERT OR UPDATE OR DELETE ON public.dead_letter_open
  FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION public.fn_webhook_immutable();
CREATE OR REPLACE TRIGGER trg_dead_open_no_truncate BEFORE TRUNCATE ON public.dead_letter_open
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_immutable();

-- fn_webhook_event_stamp() and the next triggers set times and transaction ids, so that no writer can choose them. The
-- WHEN of the triggers saves ordinary inserts the function call.
CREATE OR REPLACE FUNCTION public.fn_webhook_event_stamp() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('session_replication_role') <> 'replica' THEN
    NEW.created_at := now();
  ELSIF public.fn_queue_clone_of() IS NOT NULL THEN
    RETURN NEW; -- copied by replication: the router's cursor is copied too and refers to these numbers
  END IF;
  NEW.created_xid := pg_current_xact_id();
  RETURN NEW;
END $$;
COMMENT ON FUNCTION public.fn_webhook_event_stamp IS
  'Trigger: sets created_at and created_xid of a new webhook event; from logical replication, only created_xid.';

CREATE OR REPLACE TRIGGER trg_events_stamp BEFORE INSERT ON public.events FOR EACH ROW
  WHEN (NEW.created_at IS DISTINCT FROM now() OR NEW.created_xid IS DISTINCT FROM pg_current_xact_id())
  EXECUTE FUNCTION public.fn_webhook_event_stamp();

CREATE OR REPLACE FUNCTION public.fn_webhook_subscription_stamp() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- they decide which events a subscription gets, so nobody may choose them
  NEW.created_at := CASE TG_OP WHEN 'INSERT' THEN now() ELSE OLD.created_at END;
  NEW.created_xid := CASE TG_OP WHEN 'INSERT' THEN pg_current_xact_id() ELSE OLD.created_xid END;
  NEW.updated_at := now();
  IF TG_OP = 'UPDATE' AND NEW.id <> OLD.id THEN
    RAISE EXCEPTION 'the id of webhook subscription % cannot be changed', OLD.id
      USING ERRCODE = '42501', HINT = 'insert another webhook subscription, and set this one to inactive';
  END IF;
  RETURN NEW;
END $$;
COMMENT ON FUNCTION public.fn_webhook_subscription_stamp IS
  'Trigger: sets created_at and created_xid of a webhook subscription, because they decide which events it gets.';

CREATE OR REPLACE TRIGGER trg_subscriptions_stamp BEFORE INSERT OR UPDATE ON public.subscriptions
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_subscription_stamp();

CREATE OR REPLACE FUNCTION public.fn_webhook_subscription_made() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO public.webhook_endpoint_state (subscription_id) SELECT id FROM new_rows;
  INSERT INTO public.webhook_rate_bucket (subscription_id) SELECT id FROM new_rows;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_subscription_made IS
  'Trigger: adds the state row and the token bucket of a new webhook subscription.';

CREATE OR REPLACE TRIGGER trg_subscriptions_made AFTER INSERT ON public.subscriptions
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_subscription_made();

-- fn_webhook_subscription_audit(): writes one audit row for each written row of subscriptions, with its old and new
-- values, and one for a TRUNCATE. URLs are masked; after.changed names the changed columns, so that a change of a
-- masked value shows too. Rows from logical replication were audited where they were first written.
CREATE OR REPLACE FUNCTION public.fn_webhook_subscription_audit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_before jsonb;
  v_after jsonb;
  v_changed jsonb;
BEGIN
  IF current_setting('session_replication_role') = 'replica'
    AND EXISTS (SELECT FROM pg_stat_subscription r WHERE r.pid = pg_backend_pid()) THEN
    RETURN NULL;
  END IF;
  IF TG_OP = 'TRUNCATE' THEN
    PERFORM public.fn_operator_audit(
      p_action => 'webhook_subscription_write'::text, p_target => '(all webhook subscriptions)'::text,
      p_actor => session_user::text, p_reason => 'TRUNCATE of the table'::text, p_filter => NULL::text,
      p_frozen_count => (SELECT count(*) FROM public.subscriptions), p_before => NULL::jsonb, p_after => NULL::jsonb,
      p_outcome => 'done'::text);
    RETURN NULL;
  END IF;
  IF TG_OP <> 'INSERT' THEN
    v_before := to_jsonb(OLD) || jsonb_build_object('callback_url', public.fn_mask_url(OLD.callback_url::text),
      'endpoint', public.fn_mask_url(OLD.endpoint::text));
  END IF;
  IF TG_OP <> 'DELETE' THEN
    v_after := to_jsonb(NEW) || jsonb_build_object('callback_url', public.fn_mask_url(NEW.callback_url::text),
      'endpoint', public.fn_mask_url(NEW.endpoint::text));
  END IF;
  IF TG_OP = 'UPDATE' THEN
    SELECT COALESCE(jsonb_agg(n.key ORDER BY n.key), '[]') INTO v_changed
    FROM jsonb_each(to_jsonb(NEW)) n JOIN jsonb_each(to_jsonb(OLD)) o ON o.key = n.key
    WHERE n.value <> o.value AND n.key <> 'updated_at';
    v_after := v_after || jsonb_build_object('changed', v_changed);
  END IF;
  PERFORM public.fn_operator_audit(
    p_action => 'webhook_subscription_write'::text,
    p_target => 'webhook subscription ' || COALESCE(NEW.id, OLD.id), p_actor => session_user::text,
    p_reason => TG_OP || ' on the table', p_filter => NULL::text, p_frozen_count => 1::bigint,
    p_before => v_before, p_after => v_after, p_outcome => 'done'::text);
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_subscription_audit IS
  'Trigger: audits every change of a webhook subscription by any role; URLs are masked.';

CREATE OR REPLACE TRIGGER trg_subscriptions_audit AFTER INSERT OR UPDATE OR DELETE ON public.subscriptions
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_subscription_audit();
ALTER TABLE public.subscriptions ENABLE ALWAYS TRIGGER trg_subscriptions_audit;
CREATE OR REPLACE TRIGGER trg_subscriptions_audit_truncate BEFORE TRUNCATE ON public.subscriptions
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_subscription_audit();
ALTER TABLE public.subscriptions ENABLE ALWAYS TRIGGER trg_subscriptions_audit_truncate;

-- fn_webhook_saga_refuse(): refuses a change of a saga outside the state machine. The allowed changes are in the WHEN
-- of its triggers, so that an allowed change costs no function call. A new saga is Pending; only fn_dead_letter_requeue
-- (as queue_owner) makes a saga from a dead letter.
CREATE OR REPLACE FUNCTION public.fn_webhook_saga_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    RAISE EXCEPTION 'a new saga must be Pending, without attempts and without a dead letter that it was made from'
      USING ERRCODE = '42501', HINT = 'fn_dead_letter_requeue makes a saga from a dead letter';
  END IF;
  RAISE EXCEPTION 'this UPDATE of saga % from % (attempts %) to % (attempts %) is refused',
      OLD.id, OLD.status, OLD.attempt_count, NEW.status, NEW.attempt_count
    USING ERRCODE = '42501',
      HINT = 'Completed and DeadLettered sagas never change, nor do event_id, subscription_id, webhook_id and the dead '
        'letter of a saga (R02)';
END $$;
COMMENT ON FUNCTION public.fn_webhook_saga_refuse IS
  'Trigger: refuses a saga change outside the state machine (R02).';

CREATE OR REPLACE TRIGGER trg_saga_born BEFORE INSERT ON public.webhook_delivery_sagas FOR EACH ROW
  WHEN (NEW.status <> 'Pending' OR NEW.attempt_count <> 0
    OR (NEW.requeued_from_dead_letter_id IS NULL) <> (NEW.requeue_generation = 0)
    OR (NEW.requeued_from_dead_letter_id IS NOT NULL AND current_user <> :'queue_owner'))
  EXECUTE FUNCTION public.fn_webhook_saga_refuse();
CREATE OR REPLACE TRIGGER trg_saga_guard BEFORE UPDATE ON public.webhook_delivery_sagas FOR EACH ROW
  WHEN (NOT (
    (NEW.id, NEW.event_id, NEW.subscription_id, NEW.requeue_generation, NEW.created_at)
      = (OLD.id, OLD.event_id, OLD.subscription_id, OLD.requeue_generation, OLD.created_at)
    AND NEW.requeued_from_dead_letter_id IS NOT DISTINCT FROM OLD.requeued_from_dead_letter_id
    AND ((OLD.status IN ('Pending', 'PendingRetry') AND NEW.status = 'InProgress'
        AND NEW.attempt_count = OLD.attempt_count)
      OR (OLD.status = 'InProgress' AND NEW.status = 'Completed' AND NEW.attempt_count = OLD.attempt_count)
      OR (OLD.status = 'InProgress' AND NEW.status = 'PendingRetry'
        AND NEW.attempt_count BETWEEN OLD.attempt_count AND OLD.attempt_count + 1)
      OR (OLD.status = 'InProgress' AND NEW.status = 'DeadLettered' AND NEW.attempt_count = OLD.attempt_count + 1)
      -- fn_queue_clock_move may make a time earlier that was written by a clock that was ahead, with no other change;
      -- statement_timestamp(), because the check compares with the time at which it began
      OR (current_user = :'queue_owner' AND OLD.status IN ('Pending', 'PendingRetry') AND NEW.status = OLD.status
        AND NEW.attempt_count = OLD.attempt_count AND NEW.final_error_code IS NOT DISTINCT FROM OLD.final_error_code
        AND OLD.updated_at > statement_timestamp() + interval '5 seconds'
        AND NEW.next_attempt_at < OLD.next_attempt_at))))
  EXECUTE FUNCTION public.fn_webhook_saga_refuse();
-- a separate trigger, which costs nothing while the column is not written
CREATE OR REPLACE TRIGGER trg_saga_webhook_id BEFORE UPDATE OF webhook_id ON public.webhook_delivery_sagas
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_saga_refuse();

-- fn_webhook_undo_only(): trigger that allows DELETE to two functions only: the undo of a requeue deletes a saga
-- without a job, and retention deletes old rows.
CREATE OR REPLACE FUNCTION public.fn_webhook_undo_only() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF public.fn_called_from('fn_webhook_purge(bigint,timestamp with time zone,bigint[],bigint[])') THEN
    RETURN OLD;
  ELSIF NOT public.fn_called_from('fn_dead_letter_requeue_undo_as(bigint[],text,text,boolean,bigint)') THEN
    RAISE EXCEPTION 'DELETE from % is refused', TG_TABLE_NAME USING ERRCODE = '42501',
      HINT = 'qtop undo recalls a requeue; old rows are deleted by the flag retention.webhooks_days';
  END IF;
  IF TG_TABLE_NAME = 'webhook_delivery_sagas' THEN
    IF OLD.status <> 'Pending' OR OLD.attempt_count <> 0 OR OLD.requeued_from_dead_letter_id IS NULL
      OR EXISTS (SELECT 1 FROM public.webhook_delivery_jobs WHERE saga_id = OLD.id) THEN
      RAISE EXCEPTION 'DELETE of saga % is refused: only a requeued saga without a job can be deleted', OLD.id
        USING ERRCODE = '42501';
    END IF;
  END IF;
  RETURN OLD;
END $$;
COMMENT ON FUNCTION public.fn_webhook_undo_only IS
  'Trigger: allows DELETE only to undo a requeue that has not started, or to delete a whole settled event.';

CREATE OR REPLACE TRIGGER trg_saga_no_delete BEFORE DELETE ON public.webhook_delivery_sagas
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_undo_only();
CREATE OR REPLACE TRIGGER trg_requeues_no_delete BEFORE DELETE ON public.dead_letter_requeues
  FOR EACH ROW EXECUTE FUNCTION public.fn_webhook_undo_only();

-- fn_webhook_saga_needs_letter(): trigger that checks at commit, for every writer, that a saga became DeadLettered in
-- the transaction that wrote its dead letter.
CREATE OR REPLACE FUNCTION public.fn_webhook_saga_needs_letter() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM public.dead_letters WHERE saga_id = NEW.id) THEN
    RAISE EXCEPTION 'saga % became DeadLettered, but has no row in dead_letters', NEW.id
      USING ERRCODE = '42501', HINT = 'insert its dead letter in the same transaction';
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_saga_needs_letter IS
  'Trigger: a DeadLettered saga has its dead letter in the same transaction (R02 §3.2).';

CREATE CONSTRAINT TRIGGER trg_saga_needs_letter AFTER UPDATE ON public.webhook_delivery_sagas
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.status = 'DeadLettered')
  EXECUTE FUNCTION public.fn_webhook_saga_needs_letter();

-- fn_webhook_job_refuse(): refuses a change of a webhook job outside the state machine. Leases change only inside
-- functions (there current_user is queue_owner). R02 lets the orchestrator role update jobs, but with a direct UPDATE
-- it can only settle them.
CREATE OR REPLACE FUNCTION public.fn_webhook_job_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    RAISE EXCEPTION 'a new webhook job must be Pending, with lease_resets 0 and without retry_after_at'
      USING ERRCODE = '42501', HINT = 'leave these columns out';
  ELSIF current_user = :'queue_owner' THEN -- queue_owner may call the function used here, others may not
    IF public.fn_called_from('fn_webhook_event_erase(bigint,text,text,boolean)') THEN
      RETURN NEW;
    END IF;
  END IF;
  RAISE EXCEPTION 'this UPDATE of webhook job % (status % to %) is refused', OLD.id, OLD.status, NEW.status
    USING ERRCODE = '42501',
      HINT = 'the fn_webhook_job_ functions write leases and results; settled jobs never change (R02)';
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_refuse IS
  'Trigger: refuses a job change outside the state machine (R02).';

CREATE OR REPLACE TRIGGER trg_job_born BEFORE INSERT ON public.webhook_delivery_jobs FOR EACH ROW
  WHEN (NEW.status <> 'Pending' OR NEW.lease_resets <> 0 OR NEW.retry_after_at IS NOT NULL)
  EXECUTE FUNCTION public.fn_webhook_job_refuse();
CREATE OR REPLACE TRIGGER trg_job_guard BEFORE UPDATE ON public.webhook_delivery_jobs FOR EACH ROW
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
      WHEN current_user <> :'queue_owner' OR NEW.settled_at IS NOT NULL THEN false
      WHEN OLD.status = 'Pending' THEN NEW.status IN ('Pending', 'Leased')
        AND NEW.lease_resets = OLD.lease_resets
      ELSE NEW.lease_resets BETWEEN OLD.lease_resets AND OLD.lease_resets + 1 END))
  EXECUTE FUNCTION public.fn_webhook_job_refuse();

CREATE OR REPLACE FUNCTION public.fn_webhook_job_fill() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT COALESCE(NEW.subscription_id, s.subscription_id), COALESCE(NEW.attempt_no, 1 + (
      SELECT max(j.attempt_no) FROM public.webhook_delivery_jobs j WHERE j.saga_id = s.id), 1)
    INTO NEW.subscription_id, NEW.attempt_no
    FROM public.webhook_delivery_sagas s WHERE s.id = NEW.saga_id;
  RETURN NEW;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_fill IS
  'Trigger: copies missing values of a new job from its saga.';

CREATE OR REPLACE TRIGGER trg_job_fill BEFORE INSERT ON public.webhook_delivery_jobs FOR EACH ROW
  WHEN (NEW.subscription_id IS NULL OR NEW.attempt_no IS NULL) EXECUTE FUNCTION public.fn_webhook_job_fill();
