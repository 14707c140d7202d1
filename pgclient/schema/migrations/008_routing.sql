-- Event routing: who an event reaches, and the cursor that takes it there.
-- Sources: DP6 §3.1, §3.2 (subscriptions, resolution), DP1 §2, DP4 §3.3 (cursor).

SET LOCAL ROLE queue_owner;

CREATE TABLE public.event_subscription (
  subscription_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  recipient_ref       text NOT NULL CONSTRAINT chk_event_subscription_recipient CHECK (recipient_ref ~ '^(role|agency|user|agent):.+'),
  event_domain        text,
  event_type          text,
  event_stream        text,
  scope_subject_table text,
  scope_filter        jsonb NOT NULL DEFAULT '{}',
  mute                boolean NOT NULL DEFAULT false,
  UNIQUE NULLS NOT DISTINCT (recipient_ref, event_domain, event_type, event_stream, scope_subject_table, scope_filter)
);
CREATE INDEX ix_event_subscription_lookup ON public.event_subscription (event_domain, event_type, event_stream) WHERE mute = false;
COMMENT ON TABLE public.event_subscription IS
  'Who reads which events (DP6 §3.1). NULL means every domain, type or stream; a muted row counts as absent.';
INSERT INTO public.event_subscription (recipient_ref, event_domain, event_type, event_stream) VALUES
  ('role:health_owner', 'system', 'issue_opened', NULL),
  ('role:health_owner', 'system', 'issue_resolved', NULL),
  ('agency:sysop', NULL, NULL, 'alert'),
  ('role:workflow_admin', 'staging', NULL, 'birth'),
  ('role:workflow_admin', 'staging', NULL, 'update'),
  ('role:dot_executor', 'dot', NULL, NULL),
  ('agency:integrity', 'health', NULL, 'alert'),
  ('role:kg_indexer', 'kg', NULL, NULL),
  ('role:auto_instantiator', 'iu', 'template.instance_auto_composed', 'update');
GRANT SELECT ON public.event_subscription TO queue_viewer, dot_executor, dead_letter_operator;
GRANT SELECT, INSERT, UPDATE ON public.event_subscription TO workflow_admin;

CREATE TABLE public.iu_route_worker_cursor (
  worker_name       text NOT NULL,
  event_domain      text NOT NULL,
  last_run_at       timestamptz,
  events_seen       bigint NOT NULL DEFAULT 0,
  attempts_written  bigint NOT NULL DEFAULT 0,
  dead_lettered     bigint NOT NULL DEFAULT 0,
  cursor_xid        xid8 NOT NULL DEFAULT '0',
  cursor_id         uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
  held_rows         bigint NOT NULL DEFAULT 0,
  held_since        timestamptz,
  last_run_summary  jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY (worker_name, event_domain)
) WITH (fillfactor = 50);
COMMENT ON TABLE public.iu_route_worker_cursor IS
  'Where each route worker stands per domain. It passes only events older than every open transaction.';
GRANT SELECT ON public.iu_route_worker_cursor TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;

CREATE TABLE public.iu_route_attempt (
  event_id      uuid NOT NULL,
  recipient_ref text NOT NULL,
  step          int NOT NULL CHECK (step BETWEEN 1 AND 5),
  event_domain  text NOT NULL,
  event_type    text NOT NULL,
  worker_name   text NOT NULL,
  attempted_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (event_id, recipient_ref)
);
CREATE INDEX ix_iu_route_attempt_recipient ON public.iu_route_attempt (recipient_ref, attempted_at DESC);
COMMENT ON TABLE public.iu_route_attempt IS 'One row per event and recipient, with the resolution step that matched.';
GRANT SELECT ON public.iu_route_attempt TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;

CREATE TABLE public.iu_route_dead_letter (
  dead_letter_id  uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  event_id        uuid NOT NULL,
  event_snapshot  jsonb NOT NULL,
  event_type      text NOT NULL GENERATED ALWAYS AS (COALESCE(event_snapshot ->> 'event_type', '')) STORED,
  idempotency_key text NOT NULL UNIQUE,
  failure_code    text NOT NULL,
  last_error      text NOT NULL,
  event_domain    text NOT NULL,
  worker_name     text NOT NULL,
  last_failed_at  timestamptz NOT NULL DEFAULT now(),
  resolved_at     timestamptz,
  resolved_by     text,
  resolution      text,
  note            text,
  CHECK ((resolved_at IS NULL) = (resolution IS NULL))
);
CREATE INDEX ix_iu_route_dead_letter_open ON public.iu_route_dead_letter (event_domain, failure_code, event_type, last_failed_at)
  WHERE resolved_at IS NULL;
CREATE INDEX ix_iu_route_dead_letter_newest ON public.iu_route_dead_letter (last_failed_at DESC, dead_letter_id DESC);
CREATE INDEX ix_iu_route_dead_letter_event ON public.iu_route_dead_letter (event_id);
COMMENT ON TABLE public.iu_route_dead_letter IS 'Events that could not be routed, each alone; the others went on.';
GRANT SELECT (dead_letter_id, event_id, event_type, idempotency_key, failure_code, last_error, event_domain, worker_name,
  last_failed_at, resolved_at, resolved_by, resolution, note)
  ON public.iu_route_dead_letter TO queue_viewer, workflow_admin, dead_letter_operator;

-- Counter dead_event: code, type, domain of the open ones; dead_event_5m: code, domain/type, bucket of five minutes;
-- dead_1m: with those of webhooks and jobs.
CREATE FUNCTION public.fn_iu_route_letter_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
    SELECT 'dead_event', failure_code, event_type, event_domain, count(*) FROM new_rows WHERE resolved_at IS NULL GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'dead_event_5m', failure_code, event_domain || '/' || event_type,
      (floor(extract(epoch FROM last_failed_at) / 300) * 300)::bigint::text, count(*) FROM new_rows GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'dead_1m', '', '', (floor(extract(epoch FROM now()) / 60) * 60)::bigint::text, count(*) FROM new_rows HAVING count(*) > 0;
  ELSE
    INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
    SELECT 'dead_event', failure_code, event_type, event_domain, sum(n) FROM (
      SELECT failure_code, event_type, event_domain, -count(*) AS n FROM old_rows WHERE resolved_at IS NULL GROUP BY 1, 2, 3
      UNION ALL
      SELECT failure_code, event_type, event_domain, count(*) FROM new_rows WHERE resolved_at IS NULL GROUP BY 1, 2, 3) x
    GROUP BY 2, 3, 4 HAVING sum(n) <> 0;
  END IF;
  RETURN NULL;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_route_letter_counted() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_iu_route_letter_counted() IS 'Trigger: counters dead_event, dead_event_5m and dead_1m.';
CREATE TRIGGER trg_iu_route_dead_letter_born AFTER INSERT ON public.iu_route_dead_letter
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_iu_route_letter_counted();
CREATE TRIGGER trg_iu_route_dead_letter_closed AFTER UPDATE ON public.iu_route_dead_letter
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_iu_route_letter_counted();

-- fn_event_resolve_recipients(domain, type, stream, subject table, payload)
-- → (recipient_ref, step): each recipient once, at its best step (1 all equal,
-- 2 type NULL, 3 stream NULL, 4 both NULL); nobody = one row (broadcast, 5).
-- A NULL domain of a subscription means every domain.
CREATE FUNCTION public.fn_event_resolve_recipients(
  p_event_domain text, p_event_type text, p_event_stream text,
  p_subject_table text DEFAULT NULL, p_safe_payload jsonb DEFAULT '{}')
RETURNS TABLE (recipient_ref text, step int)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
  WITH hit AS (
    SELECT s.recipient_ref, min(CASE
        WHEN s.event_type IS NOT NULL AND s.event_stream IS NOT NULL THEN 1
        WHEN s.event_type IS NULL AND s.event_stream IS NOT NULL THEN 2
        WHEN s.event_type IS NOT NULL THEN 3 ELSE 4 END) AS step
    FROM public.event_subscription s
    WHERE NOT s.mute AND public.fn_cfg_bool('queue.subscription_resolution.enabled')
      AND (s.event_domain IS NULL OR s.event_domain = p_event_domain)
      AND (s.event_type IS NULL OR s.event_type = p_event_type)
      AND (s.event_stream IS NULL OR s.event_stream = p_event_stream)
      AND (s.scope_subject_table IS NULL OR s.scope_subject_table = p_subject_table)
      AND COALESCE(p_safe_payload, '{}') @> s.scope_filter
    GROUP BY s.recipient_ref
  )
  SELECT h.recipient_ref, h.step FROM hit h
  UNION ALL SELECT 'broadcast', 5 WHERE NOT EXISTS (SELECT 1 FROM hit)
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_resolve_recipients(text, text, text, text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_event_resolve_recipients(text, text, text, text, jsonb) TO
  queue_viewer, dot_executor, workflow_admin;
COMMENT ON FUNCTION public.fn_event_resolve_recipients(text, text, text, text, jsonb) IS
  'Who an event reaches, and by which step of DP6 §3.2.';

-- fn_iu_route_worker_run(worker, limit) → {events, attempts, dead_lettered, held}:
-- each registered domain in turn, in the order of (created_xid, id), only what is
-- older than every open transaction. A failure dead-letters its event alone.
CREATE FUNCTION public.fn_iu_route_worker_run(
  p_worker_name text DEFAULT 'iu_outbound_default', p_batch_limit int DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_domain text;
  v_cursor public.iu_route_worker_cursor;
  v_xmin xid8;
  v_event record;
  v_n int;
  v_seen int; v_written int; v_dead int; v_held bigint; v_since timestamptz;
  v_all_seen int := 0; v_all_written int := 0; v_all_dead int := 0; v_all_held bigint := 0;
BEGIN
  IF p_batch_limit IS NULL OR p_batch_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'p_batch_limit must be 1 to 10000' USING ERRCODE = '22023';
  END IF;
  IF NOT public.fn_cfg_bool('iu_core.routes_master_enabled') THEN
    RETURN jsonb_build_object('skipped', 'iu_core.routes_master_enabled is off');
  END IF;
  FOR v_domain IN
    SELECT DISTINCT r.event_domain FROM public.event_type_registry r
    WHERE (r.event_domain = 'staging') = (p_worker_name = 'staging_outbound') ORDER BY 1
  LOOP
    INSERT INTO public.iu_route_worker_cursor (worker_name, event_domain) VALUES (p_worker_name, v_domain)
    ON CONFLICT DO NOTHING;
    SELECT * INTO v_cursor FROM public.iu_route_worker_cursor c
    WHERE c.worker_name = p_worker_name AND c.event_domain = v_domain FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    v_seen := 0; v_written := 0; v_dead := 0;
    v_xmin := pg_snapshot_xmin(pg_current_snapshot());
    FOR v_event IN
      SELECT * FROM public.event_outbox e
      WHERE e.event_domain = v_domain AND e.created_xid < v_xmin
        AND (e.created_xid, e.id) > (v_cursor.cursor_xid, v_cursor.cursor_id)
      ORDER BY e.created_xid, e.id LIMIT p_batch_limit
    LOOP
      BEGIN
        INSERT INTO public.iu_route_attempt (event_id, recipient_ref, step, event_domain, event_type, worker_name)
        SELECT v_event.id, r.recipient_ref, r.step, v_event.event_domain, v_event.event_type, p_worker_name
        FROM public.fn_event_resolve_recipients(v_event.event_domain, v_event.event_type, v_event.event_stream,
          v_event.event_subject_table, v_event.safe_payload) r
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS v_n = ROW_COUNT;
        v_written := v_written + v_n;
      EXCEPTION WHEN OTHERS THEN
        INSERT INTO public.iu_route_dead_letter
          (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
        VALUES (v_event.id, to_jsonb(v_event), p_worker_name || ':' || v_event.id, 'ROUTE_' || SQLSTATE,
          left(public.fn_mask_said(SQLERRM), 1000), v_domain, p_worker_name)
        ON CONFLICT (idempotency_key) DO NOTHING;
        v_dead := v_dead + 1;
      END;
      v_seen := v_seen + 1;
      v_cursor.cursor_xid := v_event.created_xid;
      v_cursor.cursor_id := v_event.id;
    END LOOP;
    SELECT count(*), min(h.created_at) INTO v_held, v_since FROM (
      SELECT e.created_at FROM public.event_outbox e
      WHERE e.event_domain = v_domain AND e.created_xid >= v_xmin ORDER BY e.created_xid, e.id LIMIT 10001) h;
    UPDATE public.iu_route_worker_cursor c SET
      last_run_at = clock_timestamp(), events_seen = c.events_seen + v_seen, attempts_written = c.attempts_written + v_written,
      dead_lettered = c.dead_lettered + v_dead, cursor_xid = v_cursor.cursor_xid, cursor_id = v_cursor.cursor_id,
      held_rows = v_held, held_since = v_since,
      last_run_summary = jsonb_build_object('events', v_seen, 'attempts', v_written, 'dead_lettered', v_dead, 'held', v_held)
    WHERE c.worker_name = p_worker_name AND c.event_domain = v_domain;
    v_all_seen := v_all_seen + v_seen; v_all_written := v_all_written + v_written;
    v_all_dead := v_all_dead + v_dead; v_all_held := v_all_held + v_held;
  END LOOP;
  RETURN jsonb_build_object('events', v_all_seen, 'attempts', v_all_written, 'dead_lettered', v_all_dead, 'held', v_all_held);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_route_worker_run(text, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_worker_run(text, int) TO dot_executor, workflow_admin;
COMMENT ON FUNCTION public.fn_iu_route_worker_run(text, int) IS
  'Tick iu_outbound_default: routes new events of every domain but staging to their recipients.';

SELECT public.fn_queue_tick_worker_add('iu_outbound_default', 'fn_iu_route_worker_run', 'iu_core.route_worker_enabled', true, '{iu}');

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
SELECT public.fn_queue_tick_worker_drop('iu_outbound_default');
DROP FUNCTION public.fn_iu_route_worker_run(text, int);
DROP FUNCTION public.fn_event_resolve_recipients(text, text, text, text, jsonb);
DROP TABLE public.iu_route_dead_letter;
DROP FUNCTION public.fn_iu_route_letter_counted();
DROP TABLE public.iu_route_attempt;
DROP TABLE public.iu_route_worker_cursor;
DROP TABLE public.event_subscription;
RESET ROLE;
