-- Event routing: who an event reaches, where the workers stand and what waits for them. The workers are in 021.
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

-- One route per domain that has an event type: which worker takes its events, and whether it does. Between the master
-- switch, which is for all of them, and a muted subscription, which is for one reader.
CREATE TABLE public.iu_outbound_route (
  event_domain text PRIMARY KEY CHECK (event_domain ~ '^[a-z][a-z0-9_]{0,50}$'),
  worker_name  text NOT NULL CHECK (worker_name IN ('iu_outbound_default', 'staging_outbound')),
  enabled      boolean NOT NULL DEFAULT true,
  updated_at   timestamptz NOT NULL DEFAULT now(),
  updated_by   text NOT NULL DEFAULT 'migration'
);
COMMENT ON TABLE public.iu_outbound_route IS
  'Which worker routes the events of a domain. While a route is disabled its events wait, none is lost.';
GRANT SELECT ON public.iu_outbound_route TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;

CREATE FUNCTION public.fn_iu_outbound_route_born() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  INSERT INTO public.iu_outbound_route (event_domain, worker_name)
  SELECT DISTINCT n.event_domain, CASE n.event_domain WHEN 'staging' THEN 'staging_outbound' ELSE 'iu_outbound_default' END
  FROM new_rows n ORDER BY 1
  ON CONFLICT DO NOTHING;
  RETURN NULL;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_outbound_route_born() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_iu_outbound_route_born() IS 'Trigger: a domain gets its route with its first event type.';
CREATE TRIGGER trg_event_type_registry_route AFTER INSERT ON public.event_type_registry
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_iu_outbound_route_born();
INSERT INTO public.iu_outbound_route (event_domain, worker_name)
SELECT DISTINCT r.event_domain, CASE r.event_domain WHEN 'staging' THEN 'staging_outbound' ELSE 'iu_outbound_default' END
FROM public.event_type_registry r;

-- restored_*: the events that were there when the worker first met this database, or found it restored into another
-- cluster, bear transaction numbers that say nothing here. They are gone through by id, behind restored_after, and
-- what was routed is told by its attempts. Whatever was not visible then has a number from restored_xid on.
CREATE TABLE public.iu_route_worker_cursor (
  worker_name       text NOT NULL,
  event_domain      text NOT NULL,
  last_run_at       timestamptz,
  events_seen       bigint NOT NULL DEFAULT 0,
  attempts_written  bigint NOT NULL DEFAULT 0,
  dead_lettered     bigint NOT NULL DEFAULT 0,
  cursor_xid        xid8 NOT NULL DEFAULT '0',
  cursor_id         uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
  system_identifier bigint NOT NULL DEFAULT 0,
  restored_at       timestamptz NOT NULL DEFAULT now(),
  restored_xid      xid8 NOT NULL DEFAULT '0',
  restored_after    uuid,
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
COMMENT ON TABLE public.iu_route_attempt IS
  'One row per event and recipient, with the resolution step that matched. An event that has one is routed.';
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
-- A NULL domain of a subscription means every domain; a muted one is absent. With
-- queue.subscription_resolution.enabled off everything is broadcast.
CREATE FUNCTION public.fn_event_resolve_recipients(
  p_event_domain text, p_event_type text, p_event_stream text,
  p_subject_table text DEFAULT NULL, p_safe_payload jsonb DEFAULT '{}')
RETURNS TABLE (recipient_ref text, step int)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  IF public.fn_cfg_bool('queue.subscription_resolution.enabled') THEN
    RETURN QUERY
    SELECT s.recipient_ref, min(CASE
        WHEN s.event_type IS NOT NULL AND s.event_stream IS NOT NULL THEN 1
        WHEN s.event_stream IS NOT NULL THEN 2
        WHEN s.event_type IS NOT NULL THEN 3 ELSE 4 END)
    FROM public.event_subscription s
    WHERE NOT s.mute
      AND (s.event_domain IS NULL OR s.event_domain = p_event_domain)
      AND (s.event_type IS NULL OR s.event_type = p_event_type)
      AND (s.event_stream IS NULL OR s.event_stream = p_event_stream)
      AND (s.scope_subject_table IS NULL OR s.scope_subject_table = p_subject_table)
      AND COALESCE(p_safe_payload, '{}') @> s.scope_filter
    GROUP BY s.recipient_ref;
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  recipient_ref := 'broadcast';
  step := 5;
  RETURN NEXT;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_resolve_recipients(text, text, text, text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_event_resolve_recipients(text, text, text, text, jsonb) TO
  queue_viewer, dot_executor, workflow_admin;
COMMENT ON FUNCTION public.fn_event_resolve_recipients(text, text, text, text, jsonb) IS
  'Who an event reaches, and by which step of DP6 §3.2.';

-- fn_queue_settled_xid() → every transaction of this database below it has ended. What is not proven to be another
-- database's counts as ours. The caller's own transaction, which may still write, is not below it. Internal.
CREATE FUNCTION public.fn_queue_settled_xid() RETURNS xid8
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_snapshot pg_snapshot := pg_current_snapshot();
  v_xid xid8;
BEGIN
  SELECT x INTO v_xid FROM pg_snapshot_xip(v_snapshot) x
  WHERE NOT EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.backend_xid = x::xid
    AND a.datid <> (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
  ORDER BY x LIMIT 1;
  RETURN least(v_xid, pg_snapshot_xmax(v_snapshot), pg_current_xact_id_if_assigned());
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_settled_xid() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_queue_settled_xid() IS 'The oldest transaction of this database that may still write. Internal.';

-- fn_queue_holder(xid) → whose open transaction that is: pid (NULL for a prepared one), login, application, begin;
-- begin is NULL where the owner of this function may not see it; no row where it has ended. Internal.
CREATE FUNCTION public.fn_queue_holder(p_xid xid8)
RETURNS TABLE (pid int, usename text, program text, xact_start timestamptz)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  RETURN QUERY
  SELECT a.pid, a.usename::text, a.application_name, a.xact_start FROM pg_stat_activity a WHERE a.backend_xid = p_xid::xid
  UNION ALL
  SELECT NULL, p.owner::text, 'prepared transaction ' || p.gid, p.prepared FROM pg_prepared_xacts p WHERE p.transaction = p_xid::xid
  LIMIT 1;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_holder(xid8) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_queue_holder(xid8) IS 'The session of an open transaction. Internal.';

-- fn_iu_route_backlog() → one row per route: the events that its worker has not gone through, counted up to 10,001, and
-- of those the ones that it may not pass while an older transaction is open. Seen now, not when a worker last ran.
CREATE FUNCTION public.fn_iu_route_backlog()
RETURNS TABLE (worker_name text, event_domain text, enabled boolean, waiting bigint, oldest_at timestamptz,
  held_rows bigint, held_since timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off AS $fn$
#variable_conflict use_column
DECLARE
  v_settled xid8 := public.fn_queue_settled_xid();
  v_next xid8 := pg_snapshot_xmax(pg_current_snapshot());
BEGIN
  RETURN QUERY
  SELECT r.worker_name, r.event_domain, r.enabled, w.waiting, w.oldest_at, w.held_rows, w.held_since
  FROM public.iu_outbound_route r
  LEFT JOIN public.iu_route_worker_cursor c ON c.worker_name = r.worker_name AND c.event_domain = r.event_domain
  CROSS JOIN LATERAL (
    SELECT count(*) AS waiting, min(e.created_at) AS oldest_at, count(*) FILTER (WHERE e.created_xid >= v_settled) AS held_rows,
      min(e.created_at) FILTER (WHERE e.created_xid >= v_settled) AS held_since
    FROM (
      -- numbers of another cluster may lie ahead of ours: those rows were gone through
      (SELECT e.created_at, e.created_xid FROM public.event_outbox e
       WHERE c.restored_after IS NULL AND e.event_domain = r.event_domain AND e.created_at >= c.restored_at
         AND (e.created_xid, e.id) > (c.cursor_xid, c.cursor_id) AND e.created_xid < v_next
       ORDER BY e.created_xid, e.id LIMIT 10001)
      UNION ALL
      (SELECT e.created_at, '0'::xid8 FROM public.event_outbox e
       WHERE (c.worker_name IS NULL OR c.restored_after IS NOT NULL) AND e.event_domain = r.event_domain
         AND e.id > COALESCE(c.restored_after, '00000000-0000-0000-0000-000000000000')
       LIMIT 10001)) e) w;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_route_backlog() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_backlog() TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;
COMMENT ON FUNCTION public.fn_iu_route_backlog() IS
  'Events that wait to be routed per domain, and those an open transaction holds back.';

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
DROP FUNCTION public.fn_iu_route_backlog();
DROP FUNCTION public.fn_queue_holder(xid8);
DROP FUNCTION public.fn_queue_settled_xid();
DROP FUNCTION public.fn_event_resolve_recipients(text, text, text, text, jsonb);
DROP TABLE public.iu_route_dead_letter;
DROP FUNCTION public.fn_iu_route_letter_counted();
DROP TABLE public.iu_route_attempt;
DROP TABLE public.iu_route_worker_cursor;
DROP TRIGGER trg_event_type_registry_route ON public.event_type_registry;
DROP FUNCTION public.fn_iu_outbound_route_born();
DROP TABLE public.iu_outbound_route;
DROP TABLE public.event_subscription;
RESET ROLE;
