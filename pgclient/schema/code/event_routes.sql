-- Event routing: route workers assign events to recipients and create the jobs of consumers. Sources: DP1 §2, DP4 §2,
-- §3.3, DP6 §3.4.

COMMENT ON TABLE public.iu_outbound_route IS
  'Which worker routes the events of a domain. While a route is disabled, its events wait; none is lost.';
GRANT SELECT ON public.iu_outbound_route TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

COMMENT ON TABLE public.iu_route_worker_cursor IS
  'Totals of each route worker per domain, and since when; its position is in queue_cursor.';
COMMENT ON COLUMN public.iu_route_worker_cursor.events_seen IS 'events routed so far';
COMMENT ON COLUMN public.iu_route_worker_cursor.attempts_written IS 'attempts written so far';
COMMENT ON COLUMN public.iu_route_worker_cursor.dead_lettered IS 'events that could not be routed so far';
COMMENT ON COLUMN public.iu_route_worker_cursor.system_identifier IS
  'system identifier of the cluster in which the worker last ran; another one means that the database was restored';
COMMENT ON COLUMN public.iu_route_worker_cursor.restored_at IS
  'when the worker first ran in this cluster; older events count as committed';
COMMENT ON COLUMN public.iu_route_worker_cursor.restored_xid IS
  'used only to take over the position that a release without queue_cursor stored; so are the columns cursor_*';
COMMENT ON COLUMN public.iu_route_worker_cursor.restored_after IS
  'while the worker goes through the events older than restored_at by id: the last id; NULL = done';
GRANT SELECT ON public.iu_route_worker_cursor TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

COMMENT ON TABLE public.iu_route_attempt IS
  'One row per event and recipient, with the resolution step that matched. An event that has one is routed.';
COMMENT ON COLUMN public.iu_route_attempt.step IS
  '1 all equal, 2 any type, 3 any stream, 4 any of both, 5 broadcast (DP6 §3.2)';
GRANT SELECT ON public.iu_route_attempt TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

COMMENT ON TABLE public.iu_route_dead_letter IS
  'Events that could not be routed. Each fails alone: the other events of its batch were routed.';
COMMENT ON COLUMN public.iu_route_dead_letter.event_snapshot IS 'the event at the time when it failed';
COMMENT ON COLUMN public.iu_route_dead_letter.failure_code IS 'ROUTE_ and the SQLSTATE';
GRANT SELECT (dead_letter_id, event_id, event_type, idempotency_key, failure_code, last_error, event_domain,
  worker_name,
  last_failed_at, resolved_at, resolved_by, resolution, note)
  ON public.iu_route_dead_letter TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";

COMMENT ON TABLE public.consumer_registry IS
  'Consumers of events: each event makes one job of this kind for this executor per enabled row (DP6 §3.4).';
GRANT SELECT ON public.consumer_registry TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

-- fn_iu_outbound_route_add(domains): creates the routes of these domains that do not exist. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_outbound_route_add(p_domains text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  INSERT INTO public.iu_outbound_route (event_domain, worker_name)
  SELECT DISTINCT d.event_domain, CASE d.event_domain WHEN 'staging' THEN 'staging_outbound'
    ELSE 'iu_outbound_default' END
  FROM unnest(p_domains) d (event_domain)
  WHERE NOT EXISTS (SELECT FROM public.iu_outbound_route r WHERE r.event_domain = d.event_domain) ORDER BY 1
  ON CONFLICT DO NOTHING;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_outbound_route_add IS
  'Creates the routes of event domains that have none. Internal.';

CREATE OR REPLACE FUNCTION public.fn_iu_outbound_route_born() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  PERFORM public.fn_iu_outbound_route_add(ARRAY(SELECT n.event_domain FROM new_rows n));
  RETURN NULL;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_outbound_route_born IS
  'Trigger: creates the route of a domain when its first event type is registered.';

CREATE OR REPLACE TRIGGER trg_event_type_registry_route AFTER INSERT ON public.event_type_registry
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_iu_outbound_route_born();

-- fn_iu_route_letter_counted(): trigger of iu_route_dead_letter that writes three counters. dead_event (code, type,
-- domain) counts open dead letters; dead_event_5m (code, domain/type, start of the five minutes) counts new ones;
-- dead_1m counts the new dead letters of events, webhooks and jobs together, per minute.
CREATE OR REPLACE FUNCTION public.fn_iu_route_letter_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    SELECT 'dead_event', failure_code, event_type, event_domain, count(*) FROM new_rows WHERE resolved_at IS NULL
      GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'dead_event_5m', failure_code, event_domain || '/' || event_type,
      (floor(extract(epoch FROM last_failed_at) / 300) * 300)::bigint::text, count(*) FROM new_rows GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'dead_1m', '', '', (floor(extract(epoch FROM now()) / 60) * 60)::bigint::text, count(*) FROM new_rows
      HAVING count(*) > 0;
  ELSE
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    SELECT 'dead_event', failure_code, event_type, event_domain, sum(n) FROM (
      SELECT failure_code, event_type, event_domain, -count(*) AS n FROM old_rows WHERE resolved_at IS NULL
        GROUP BY 1, 2, 3
      UNION ALL
      SELECT failure_code, event_type, event_domain, count(*) FROM new_rows WHERE resolved_at IS NULL
        GROUP BY 1, 2, 3) x
    GROUP BY 2, 3, 4 HAVING sum(n) <> 0;
  END IF;
  RETURN NULL;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_route_letter_counted IS
  'Trigger: counters dead_event, dead_event_5m and dead_1m.';

CREATE OR REPLACE TRIGGER trg_iu_route_dead_letter_born AFTER INSERT ON public.iu_route_dead_letter
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_iu_route_letter_counted();
CREATE OR REPLACE TRIGGER trg_iu_route_dead_letter_closed AFTER UPDATE ON public.iu_route_dead_letter
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT
    EXECUTE FUNCTION public.fn_iu_route_letter_counted();

-- fn_iu_route_backlog() → one row per route: how many events its worker has not routed, counted up to 10,001, computed
-- when it is called. held_rows and held_since are always 0 and NULL; only programs of an earlier release read them.
CREATE OR REPLACE FUNCTION public.fn_iu_route_backlog()
RETURNS TABLE (worker_name text, event_domain text, enabled boolean, waiting bigint, oldest_at timestamptz,
  held_rows bigint, held_since timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
#variable_conflict use_column
DECLARE
  v_now pg_snapshot := pg_current_snapshot();
  v_clock timestamptz := clock_timestamp(); -- restored_at is ahead of it after the clock was set back
BEGIN
  RETURN QUERY
  SELECT r.worker_name, r.event_domain, r.enabled, w.waiting, w.oldest_at, 0::bigint, NULL::timestamptz
  FROM public.iu_outbound_route r
  LEFT JOIN public.iu_route_worker_cursor x ON x.worker_name = r.worker_name AND x.event_domain = r.event_domain
  LEFT JOIN LATERAL public.fn_routing_cursor(x.worker_name, x.event_domain, x.cursor_xid, x.cursor_id::text) c ON true
  CROSS JOIN LATERAL (SELECT public.fn_routing_moved(c, x.system_identifier) AS yes) moved
  CROSS JOIN LATERAL (
    SELECT count(*) AS waiting, min(e.created_at) AS oldest_at
    FROM (
      -- after a restore, transaction ids of the old cluster may be ahead of the current ones: rows before restored_at
      -- were routed
      (SELECT t.created_at FROM public.fn_routing_ranges(c.routed, v_now) b
       CROSS JOIN LATERAL ( -- this order matches the index
         SELECT e.created_at FROM public.event_outbox e
         WHERE x.restored_after IS NULL AND NOT moved.yes AND e.event_domain = r.event_domain
           AND (e.created_at >= x.restored_at OR x.restored_at > v_clock)
           AND e.created_xid > b.after AND e.created_xid < b.before
           AND (pg_visible_in_snapshot(e.created_xid, c.batch)
             AND (e.created_xid, e.id) <= (c.batch_xid, c.batch_id::uuid)) IS NOT TRUE
         ORDER BY e.created_xid, e.id LIMIT 10001) t
       LIMIT 10001)
      UNION ALL
      (SELECT e.created_at FROM public.event_outbox e
       WHERE x.worker_name IS NULL AND e.event_domain = r.event_domain LIMIT 10001)
      UNION ALL -- in the transaction ids of the cursor, or written since its last full run: in a copy, too
      (SELECT e.created_at FROM public.event_outbox e
       WHERE moved.yes AND e.event_domain = r.event_domain
         AND (e.created_at > x.last_run_at - interval '1 minute' OR e.created_xid >= pg_snapshot_xmax(c.routed)
           OR e.created_xid = ANY (ARRAY(SELECT pg_snapshot_xip(c.routed))))
         AND NOT EXISTS (SELECT FROM public.iu_route_attempt a WHERE a.event_id = e.id)
         AND NOT EXISTS (SELECT FROM public.iu_route_dead_letter d WHERE d.event_id = e.id)
       LIMIT 10001)
      UNION ALL
      (SELECT e.created_at FROM public.event_outbox e
       WHERE NOT moved.yes AND e.event_domain = r.event_domain AND e.id > x.restored_after
         AND NOT EXISTS (SELECT FROM public.iu_route_attempt a WHERE a.event_id = e.id)
         AND NOT EXISTS (SELECT FROM public.iu_route_dead_letter d WHERE d.event_id = e.id)
       LIMIT 10001)) e) w;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_backlog TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_iu_route_backlog IS
  'How many events wait to be routed, per domain.';

CREATE OR REPLACE TRIGGER trg_iu_route_dead_letter_no_truncate BEFORE TRUNCATE ON public.iu_route_dead_letter
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();

-- fn_iu_route_events(events, worker) → (attempts, jobs): routes all of these events, or raises. An event is routed
-- once: its jobs are created together with its first attempts, and an event that already has attempts is skipped. It
-- raises 23505 if the attempts are those of another event with its id, which another run has routed meanwhile. A job
-- refers to its event and contains nothing of its payload. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_route_events(p_events public.event_outbox[], p_worker_name text,
  OUT attempts bigint, OUT jobs bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
DECLARE
  v_max int := public.fn_cfg_int('queue.retry.max_attempts_default', 20);
  v_recipients bigint; -- of all events together
  v_at timestamptz;
  v_later timestamptz; -- the newest attempt of these recipients, if it is not before v_at
  -- if no event subscription filters by payload, the recipients of all events of a type are found together
  v_scoped boolean := EXISTS (SELECT 1 FROM public.event_subscription s WHERE NOT s.mute AND s.scope_filter <> '{}');
BEGIN
  LOCK TABLE public.iu_route_attempt IN ROW EXCLUSIVE MODE; -- before the clock is read: fn_event_inbox_advance
  v_at := clock_timestamp();
  WITH e AS MATERIALIZED (
    SELECT u.id, u.event_domain, u.event_type, u.event_stream, u.event_subject_table, u.event_subject_ref,
      u.correlation_id,
      CASE WHEN v_scoped THEN u.safe_payload ELSE '{}' END AS payload,
        dense_rank() OVER (ORDER BY u.event_domain, u.event_type,
        u.event_stream, u.event_subject_table, CASE WHEN v_scoped THEN u.safe_payload END) AS same_resolution
    FROM unnest(p_events) u
  ), reach AS MATERIALIZED (
    SELECT k.same_resolution, r.recipient_ref, r.step
    FROM (SELECT DISTINCT ON (e.same_resolution) e.* FROM e ORDER BY e.same_resolution) k
    CROSS JOIN LATERAL public.fn_event_resolve_recipients(k.event_domain, k.event_type, k.event_stream,
      k.event_subject_table, k.payload) r
  ), new_attempts AS (
    INSERT INTO public.iu_route_attempt (event_id, recipient_ref, step, event_domain, event_type, worker_name,
      attempted_at)
    SELECT e.id, r.recipient_ref, r.step, e.event_domain, e.event_type, p_worker_name, v_at FROM e JOIN reach r
      USING (same_resolution)
    ORDER BY e.id, r.recipient_ref
    ON CONFLICT DO NOTHING RETURNING event_id
  ), new_jobs AS (
    INSERT INTO public.job_queue (job_kind, event_domain, executor, payload, max_attempts, idempotency_key,
      source_ref, target_ref,
      payload_ref, actor, correlation_id, causation_event_id)
    SELECT c.job_kind, e.event_domain, c.executor, jsonb_build_object('event_id', e.id, 'event_type', e.event_type),
      v_max,
      'route:' || e.id || ':' || c.consumer_id, 'event_outbox/' || e.id, e.event_subject_table || '/'
        || e.event_subject_ref,
      'event_outbox/' || e.id, c.consumer_id, e.correlation_id, e.id
    FROM e JOIN public.consumer_registry c ON c.enabled AND c.event_domain = e.event_domain
      AND c.event_type = e.event_type
    WHERE (e.id IN (SELECT DISTINCT p.event_id FROM new_attempts p)) IS TRUE -- hashed: see job_claim.sql
    ORDER BY c.job_kind, e.id, c.consumer_id
    ON CONFLICT (job_kind, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING RETURNING job_id
  )
  SELECT (SELECT count(*) FROM new_attempts), (SELECT count(*) FROM new_jobs),
    (SELECT count(*) FROM e JOIN reach USING (same_resolution)),
    (SELECT max(n.attempted_at) FROM (SELECT DISTINCT reach.recipient_ref FROM reach) r
      CROSS JOIN LATERAL (SELECT a.attempted_at FROM public.iu_route_attempt a
        WHERE a.recipient_ref = r.recipient_ref AND a.attempted_at >= v_at
        ORDER BY a.attempted_at DESC LIMIT 1) n) -- those of before this statement
  INTO attempts, jobs, v_recipients, v_later;
  IF v_later IS NOT NULL THEN -- the clock was set back
    BEGIN
      LOCK TABLE public.event_inbox_position IN SHARE ROW EXCLUSIVE MODE NOWAIT;
      DELETE FROM public.event_inbox_position p WHERE p.read_until >= v_at;
    EXCEPTION WHEN lock_not_available THEN -- somebody is storing one, which covers nothing after v_later
      UPDATE public.iu_route_attempt a SET attempted_at = v_later + interval '1 microsecond'
      WHERE a.event_id = ANY (SELECT u.id FROM unnest(p_events) u) AND a.attempted_at = v_at;
    END;
  END IF;
  IF attempts < v_recipients AND EXISTS (
    SELECT FROM unnest(p_events) u JOIN public.iu_route_attempt a ON a.event_id = u.id
    WHERE (a.event_domain, a.event_type) <> (u.event_domain, u.event_type)) THEN
    RAISE EXCEPTION 'another event with the same id is routed' USING ERRCODE = '23505';
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_route_events IS
  'Writes the attempts and jobs of a batch of events, all or none. Internal.';

-- fn_iu_route_apply(events, worker) → (attempts, jobs, failed): routes all events that can be routed. failed: an array
-- of {event_id, code, error}. It first routes the batch as a whole; if that fails, the batch is halved until each event
-- that cannot be routed is alone. A temporary error (deadlock, timeout, out of space) is raised, so that the whole
-- batch is retried. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_route_apply(p_events public.event_outbox[], p_worker_name text,
  OUT attempts bigint, OUT jobs bigint, OUT failed jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_n int := COALESCE(cardinality(p_events), 0);
  v_part record;
BEGIN
  attempts := 0;
  jobs := 0;
  failed := '[]';
  IF v_n = 0 THEN
    RETURN;
  END IF;
  BEGIN
    SELECT r.attempts, r.jobs INTO attempts, jobs FROM public.fn_iu_route_events(p_events, p_worker_name) r;
    RETURN;
  EXCEPTION WHEN OTHERS THEN
    IF SQLSTATE ~ '^(40|53|55P03|57|58|XX)' THEN
      RAISE;
    ELSIF v_n = 1 THEN
      failed := jsonb_build_array(jsonb_build_object('event_id', p_events[1].id, 'code', 'ROUTE_' || SQLSTATE,
        'error', left(public.fn_mask_said(SQLERRM), 1000)));
      RETURN;
    END IF;
  END;
  attempts := 0;
  jobs := 0;
  FOR v_part IN
    SELECT r.* FROM (VALUES (1, p_events[1:v_n / 2]), (2, p_events[v_n / 2 + 1:v_n])) h (half, events)
    CROSS JOIN LATERAL public.fn_iu_route_apply(h.events, p_worker_name) r ORDER BY h.half
  LOOP
    attempts := attempts + v_part.attempts;
    jobs := jobs + v_part.jobs;
    failed := failed || v_part.failed;
  END LOOP;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_route_apply IS
  'Routes the events of a batch that can be routed and returns the others with their errors. Internal.';

-- fn_iu_route_dead_letter_of(dead letter, domain, created_at) → whether the dead letter is of the event of this domain
-- and time, and not of another event with the same id. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_route_dead_letter_of(p_dead_letter public.iu_route_dead_letter,
  p_event_domain text, p_created_at timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN p_dead_letter.event_domain = p_event_domain
    AND COALESCE((p_dead_letter.event_snapshot ->> 'created_at')::timestamptz, p_created_at) = p_created_at;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_route_dead_letter_of IS
  'Whether a dead letter is of this event, and not of another with its id. Internal.';

-- fn_iu_route_dead_duplicates(events, worker) → how many dead letters ROUTE_DUPLICATE_ID it wrote: one for each of the
-- events that has no dead letter. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_route_dead_duplicates(p_events public.event_outbox[], p_worker_name text)
  RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
DECLARE
  v_n bigint;
BEGIN
  INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error,
    event_domain, worker_name)
  SELECT u.id, to_jsonb(u), concat_ws(':', p_worker_name, u.id, extract(epoch FROM u.created_at)),
    'ROUTE_DUPLICATE_ID', 'another event with the same id came before', u.event_domain, p_worker_name
  FROM unnest(p_events) u
  WHERE NOT EXISTS (SELECT FROM public.iu_route_dead_letter d
    WHERE d.event_id = u.id AND public.fn_iu_route_dead_letter_of(d, u.event_domain, u.created_at))
  ORDER BY u.id, u.created_at
  ON CONFLICT (idempotency_key) DO NOTHING;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  RETURN v_n;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_route_dead_duplicates IS
  'Writes dead letters for events with whose id another event came before. Internal.';

-- fn_iu_route_duplicates(batch, fresh, worker) → (fresh, dead): producers may choose ids, and an id marks its event as
-- routed; so of several events with one id only the one that is read first is routed. fresh: those of fresh that are
-- the first with their id; dead: how many dead letters it wrote for the other events of batch that another event with
-- their id came before, in any domain. An event of batch that was routed before (a restored copy, a new cursor) is
-- recognised by its dead letter, its pending step, or the domain and type of its attempts, if every other event with
-- its id, domain and type has a dead letter; while the worker reads all events by id, only the earlier ones count.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_route_duplicates(p_batch public.event_outbox[],
  p_fresh public.event_outbox[], p_worker_name text, OUT fresh public.event_outbox[], OUT dead bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
DECLARE
  v_pending text[];
  v_by_id boolean;
BEGIN
  fresh := p_fresh;
  dead := 0;
  IF COALESCE(cardinality(p_batch), 0) = COALESCE(cardinality(p_fresh), 0)
    AND (SELECT count(DISTINCT u.id) = count(*) FROM unnest(p_fresh) u) THEN
    RETURN;
  END IF;
  v_pending := public.fn_queue_step_except('event_route'::text);
  v_by_id := EXISTS (SELECT FROM public.iu_route_worker_cursor w
    WHERE w.worker_name = p_worker_name AND w.event_domain = (p_batch[1]).event_domain
      AND w.restored_after IS NOT NULL);
  SELECT array_agg(f.e ORDER BY (f.e).id) INTO fresh FROM (
    SELECT DISTINCT ON (u.id) u::public.event_outbox AS e FROM unnest(p_fresh) u ORDER BY u.id, u.created_at) f;
  dead := public.fn_iu_route_dead_duplicates(ARRAY(
    SELECT u::public.event_outbox FROM unnest(p_batch) u
    WHERE NOT EXISTS (SELECT FROM unnest(fresh) f WHERE (f.id, f.created_at) = (u.id, u.created_at))
      AND concat_ws('/', u.id, extract(epoch FROM u.created_at)) <> ALL (v_pending)
      AND NOT (u.id::text = ANY (v_pending) -- a target of an earlier release
        AND NOT EXISTS (SELECT FROM public.event_outbox e WHERE e.id = u.id AND e.created_at <> u.created_at))
      AND NOT (EXISTS (SELECT FROM public.iu_route_attempt a
          WHERE (a.event_id, a.event_domain, a.event_type) = (u.id, u.event_domain, u.event_type))
        AND NOT EXISTS (SELECT FROM public.event_outbox e
          WHERE (e.id, e.event_domain, e.event_type) = (u.id, u.event_domain, u.event_type)
            AND (e.created_at < u.created_at OR e.created_at > u.created_at AND NOT v_by_id)
            AND NOT EXISTS (SELECT FROM public.iu_route_dead_letter d
              WHERE d.event_id = e.id AND public.fn_iu_route_dead_letter_of(d, e.event_domain, e.created_at))))),
    p_worker_name);
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_route_duplicates IS
  'Of the events of a batch with one id, finds the first and makes dead letters of the others. Internal.';

-- fn_iu_route_worker_run(worker, limit, quick) → {events, attempts, jobs, dead_lettered} or {skipped: why}: routes up
-- to limit new events of each of the worker's routes, in batches (queue_cursor), each in the order of (created_xid,
-- id).
--   concurrency   two runs at once work on different domains
--   bad events    an event that cannot be routed becomes a dead letter; the others are routed. So does an event with
--                 whose id another run routes another event at the same time, if both reach one recipient
--   restore       after a restore (fn_routing_moved), all events are read once by id: an event that has attempts or a
--                 dead letter counts as routed. One run reads on past these, for up to 5 s
--   quick         (fn_queue_tick_run) routes the same events as a full run, but raises if one cannot be routed, and
--                 does not write iu_route_worker_cursor: the next full run does
CREATE OR REPLACE FUNCTION public.fn_iu_route_worker_run(p_worker_name text DEFAULT 'iu_outbound_default',
  p_batch_limit int DEFAULT 1000, p_quick boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
DECLARE
  v_until timestamptz := clock_timestamp() + interval '5 seconds';
  v_moved boolean;
  v_flag text;
  v_domain text;
  x public.iu_route_worker_cursor;
  c public.queue_cursor;
  v_open boolean;
  v_quick boolean;
  v_uncounted bigint[]; -- events, attempts, dead letters since the last full run
  v_part public.event_outbox[];
  v_batch public.event_outbox[];
  v_fresh public.event_outbox[];
  v_pending uuid[];
  v_n int;
  v_duplicates record;
  v_done jsonb;
  v_late boolean;
  v_all bigint[] := '{0,0,0,0}'::bigint[];
BEGIN
  IF p_batch_limit IS NULL OR p_batch_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'p_batch_limit must be 1 to 10000' USING ERRCODE = '22023';
  ELSIF p_worker_name IS NULL OR p_worker_name NOT IN ('iu_outbound_default', 'staging_outbound') THEN
    RAISE EXCEPTION 'p_worker_name must be iu_outbound_default or staging_outbound' USING ERRCODE = '22023';
  END IF;
  IF public.fn_queue_clone_of() IS NOT NULL THEN
    RETURN jsonb_build_object('skipped', public.fn_queue_clone_of(), 'rule', 'clone');
  END IF;
  FOREACH v_flag IN ARRAY '{iu_core.routes_master_enabled,iu_core.route_worker_enabled}'::text[] LOOP
    IF NOT public.fn_cfg_bool(v_flag) THEN
      RETURN jsonb_build_object('skipped', v_flag || ' is off');
    END IF;
  END LOOP;
  IF NOT p_quick THEN
    PERFORM public.fn_routing_loaded();
  END IF;
  v_done := CASE WHEN p_quick THEN '{}'::jsonb
    ELSE public.fn_queue_step_rest('event_route'::text) END; -- earlier failed events, of every domain
  v_all := ARRAY[0, COALESCE((v_done ->> 'attempts')::bigint, 0), COALESCE((v_done ->> 'jobs')::bigint, 0),
    COALESCE((v_done ->> 'dead_lettered')::bigint, 0)];
  v_late := v_done ? 'timed_out';
  FOR v_domain IN
    SELECT r.event_domain FROM public.iu_outbound_route r WHERE r.worker_name = p_worker_name AND r.enabled ORDER BY 1
  LOOP
    EXIT WHEN v_late;
    INSERT INTO public.iu_route_worker_cursor (worker_name, event_domain)
    SELECT p_worker_name, v_domain WHERE NOT EXISTS ( -- ON CONFLICT would wait for a row that another run updates
      SELECT 1 FROM public.iu_route_worker_cursor w WHERE w.worker_name = p_worker_name AND w.event_domain = v_domain)
    ON CONFLICT DO NOTHING;
    SELECT * INTO x FROM public.iu_route_worker_cursor w
    WHERE w.worker_name = p_worker_name AND w.event_domain = v_domain FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    c := public.fn_routing_cursor(p_worker_name, v_domain,
      CASE WHEN x.restored_after IS NULL THEN x.cursor_xid ELSE x.restored_xid END, x.cursor_id::text);

    v_moved := public.fn_routing_moved(c, x.system_identifier);
    v_quick := p_quick AND NOT v_moved AND x.restored_after IS NULL;
    IF v_moved THEN
      -- taken before any event is read: so no event is visible in this snapshot that the run did not see, and
      -- none is skipped
      c.routed := public.fn_routing_snapshot();
      c.batch := NULL;
      c.origin := public.fn_routing_origin();
      UPDATE public.iu_route_worker_cursor w SET system_identifier = split_part(c.origin, '/', 1)::bigint,
        restored_at = clock_timestamp(), restored_after = '00000000-0000-0000-0000-000000000000'
      WHERE w.worker_name = p_worker_name AND w.event_domain = v_domain RETURNING w.* INTO x;
      DELETE FROM public.event_inbox_position; -- attempts with earlier times may have been loaded
    END IF;
    v_pending := ARRAY(SELECT split_part(t, '/', 1)::uuid
      FROM unnest(public.fn_queue_step_except('event_route'::text)) t);
    LOOP -- once, or until an event is to be routed: after a restore
      v_batch := '{}';
      IF x.restored_after IS NOT NULL THEN
        SELECT array_agg(b.e ORDER BY (b.e).id) INTO v_batch FROM (
          SELECT e FROM public.event_outbox e
          WHERE e.event_domain = v_domain AND e.id > x.restored_after
          ORDER BY e.id FETCH FIRST p_batch_limit ROWS WITH TIES) b; -- WITH TIES: a chosen id may exist twice
        x.restored_after := (v_batch[p_batch_limit]).id;
      ELSE
        LOOP -- first the rest of the open batch, then a new batch
          v_open := c.batch IS NOT NULL;
          IF NOT v_open THEN
            c.batch := public.fn_routing_snapshot();
            c.batch_xid := '0';
            c.batch_id := '00000000-0000-0000-0000-000000000000';
          END IF;
          SELECT array_agg(b.e ORDER BY b.n, (b.e).created_xid, (b.e).id) INTO v_part FROM (
            SELECT r.n, t.e FROM public.fn_routing_ranges(c.routed, c.batch) WITH ORDINALITY r (after, before, n)
            CROSS JOIN LATERAL (
              SELECT e FROM public.event_outbox e
              WHERE e.event_domain = v_domain AND (e.created_xid, e.id) > (greatest(r.after, c.batch_xid),
                  CASE WHEN c.batch_xid > r.after THEN c.batch_id ELSE 'ffffffff-ffff-ffff-ffff-ffffffffffff' END::uuid)
                AND e.created_xid < r.before
              ORDER BY e.created_xid, e.id LIMIT p_batch_limit - cardinality(v_batch)) t
            ORDER BY r.n, (t.e).created_xid, (t.e).id LIMIT p_batch_limit - cardinality(v_batch)) b;
          v_batch := v_batch || v_part;
          EXIT WHEN cardinality(v_batch) = p_batch_limit;
          IF v_open OR v_part IS NOT NULL THEN
            c.routed := c.batch;
          END IF;
          c.batch := NULL;
          EXIT WHEN NOT v_open;
        END LOOP;
      END IF;
      SELECT array_agg(u::public.event_outbox ORDER BY u.id) INTO v_fresh FROM unnest(v_batch) u
      WHERE NOT EXISTS (SELECT 1 FROM public.iu_route_attempt a WHERE a.event_id = u.id)
        AND NOT EXISTS (SELECT 1 FROM public.iu_route_dead_letter d WHERE d.event_id = u.id
          AND (d.failure_code <> 'ROUTE_DUPLICATE_ID'
            OR public.fn_iu_route_dead_letter_of(d, u.event_domain, u.created_at)))
        AND u.id <> ALL (v_pending);
      SELECT * INTO v_duplicates FROM public.fn_iu_route_duplicates(v_batch, v_fresh, p_worker_name);
      EXIT WHEN x.restored_after IS NULL OR v_fresh IS NOT NULL OR v_duplicates.dead > 0
        OR clock_timestamp() > v_until;
    END LOOP;
    c.batch_xid := CASE WHEN c.batch IS NOT NULL THEN (v_batch[p_batch_limit]).created_xid END;
    c.batch_id := CASE WHEN c.batch IS NOT NULL THEN (v_batch[p_batch_limit]).id END;
    v_fresh := v_duplicates.fresh;
    v_done := '{"attempts": 0, "jobs": 0, "dead_lettered": 0}'::jsonb;
    IF v_fresh IS NOT NULL AND v_quick THEN -- if it raises, the next full run isolates the bad event
      v_done := v_done || (SELECT to_jsonb(r) FROM public.fn_iu_route_events(v_fresh, p_worker_name) r);
    ELSIF v_fresh IS NOT NULL THEN
      v_late := NULL;
      BEGIN
        v_done := v_done || (SELECT to_jsonb(r) FROM public.fn_iu_route_events(v_fresh, p_worker_name) r);
      EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN
        v_late := public.fn_queue_step_late(SQLSTATE::text);
        IF v_late IS NULL THEN
          RAISE;
        END IF;
        PERFORM public.fn_queue_step_part('event_route'::text, ARRAY(
          SELECT concat_ws('/', u.id, extract(epoch FROM u.created_at)) FROM unnest(v_fresh) u ORDER BY u.id));
      END;
      IF NOT v_late THEN
        v_done := public.fn_queue_step_sum(v_done, public.fn_queue_step_rest('event_route'::text));
      END IF;
      v_late := COALESCE(v_late OR v_done ? 'timed_out', false);
    END IF;
    v_done := public.fn_queue_step_sum(v_done, jsonb_build_object('dead_lettered', v_duplicates.dead));

    v_n := COALESCE(cardinality(v_fresh), 0) + v_duplicates.dead;
    v_uncounted := ARRAY[COALESCE((c.uncounted ->> 'events')::bigint, 0) + v_n,
      COALESCE((c.uncounted ->> 'attempts')::bigint, 0) + (v_done ->> 'attempts')::bigint,
      COALESCE((c.uncounted ->> 'dead_lettered')::bigint, 0) + (v_done ->> 'dead_lettered')::bigint];
    c.uncounted := CASE WHEN v_quick AND v_uncounted <> '{0,0,0}'::bigint[] THEN jsonb_build_object(
      'events', v_uncounted[1], 'attempts', v_uncounted[2], 'dead_lettered', v_uncounted[3]) ELSE '{}' END;
    PERFORM public.fn_routing_cursor_keep(c);
    UPDATE public.iu_route_worker_cursor w SET
      last_run_at = clock_timestamp(), events_seen = w.events_seen + v_uncounted[1],
      attempts_written = w.attempts_written + v_uncounted[2], dead_lettered = w.dead_lettered + v_uncounted[3],
      system_identifier = x.system_identifier, restored_at = x.restored_at, restored_after = x.restored_after,
      last_run_summary = jsonb_build_object('events', v_n, 'attempts', v_done -> 'attempts', 'jobs', v_done -> 'jobs',
        'dead_lettered', v_done -> 'dead_lettered')
    WHERE w.worker_name = p_worker_name AND w.event_domain = v_domain AND NOT v_quick;
    v_all := ARRAY[v_all[1] + v_n, v_all[2] + (v_done ->> 'attempts')::bigint, v_all[3] + (v_done ->> 'jobs')::bigint,
      v_all[4] + (v_done ->> 'dead_lettered')::bigint];
  END LOOP;
  RETURN jsonb_build_object('events', v_all[1], 'attempts', v_all[2], 'jobs', v_all[3], 'dead_lettered', v_all[4])
    || public.fn_queue_step_unfinished('event_route'::text);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_worker_run TO :"dot_executor", :"workflow_admin";
COMMENT ON FUNCTION public.fn_iu_route_worker_run IS
  'Ticks iu_outbound_default and staging_outbound: routes new events to their recipients and creates the jobs of '
  'their consumers.';

-- fn_step_event_route(limit, only, except) → {attempts, jobs, dead_lettered}: a step (quarantine.sql) that routes the
-- events in only, which failed in a batch: ID/created_at in seconds, since other events may have the id; of an earlier
-- release the id alone. It does so even if the route of their domain has been disabled since, because the cursor of the
-- worker has already passed these events. An event with whose id another event came before becomes a dead letter.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_step_event_route(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
DECLARE
  v_part record;
  v_out jsonb := '{"attempts": 0, "jobs": 0}'::jsonb;
BEGIN
  FOR v_part IN
    SELECT o.worker_name, array_agg(o.e ORDER BY (o.e).id) FILTER (WHERE o.first) AS events,
      array_agg(o.e) FILTER (WHERE o.named AND NOT o.first) AS duplicates
    FROM (
      SELECT r.worker_name, e::public.event_outbox AS e, n.named,
        row_number() OVER (PARTITION BY e.id ORDER BY e.created_at, e.created_xid) = 1
          AND NOT EXISTS (SELECT FROM public.iu_route_attempt a WHERE a.event_id = e.id)
          AND NOT EXISTS (SELECT FROM public.iu_route_dead_letter d
            WHERE d.event_id = e.id AND d.failure_code <> 'ROUTE_DUPLICATE_ID') AS first
      FROM public.event_outbox e JOIN public.iu_outbound_route r ON r.event_domain = e.event_domain
      CROSS JOIN LATERAL (
        SELECT concat_ws('/', e.id, extract(epoch FROM e.created_at)) = ANY (p_only) AS named) n
      WHERE e.id = ANY (ARRAY(SELECT split_part(t, '/', 1)::uuid FROM unnest(p_only) t))
        AND (n.named OR e.id::text = ANY (p_only))) o
    GROUP BY o.worker_name ORDER BY o.worker_name
  LOOP
    IF v_part.duplicates IS NOT NULL THEN
      v_out := public.fn_queue_step_sum(v_out, jsonb_build_object('dead_lettered',
        public.fn_iu_route_dead_duplicates(v_part.duplicates, v_part.worker_name)));
    END IF;
    CONTINUE WHEN v_part.events IS NULL;
    v_out := public.fn_queue_step_sum(v_out, (SELECT to_jsonb(r)
      FROM public.fn_iu_route_events(v_part.events, v_part.worker_name) r));
  END LOOP;
  RETURN v_out;
END
$fn$;
COMMENT ON FUNCTION public.fn_step_event_route IS
  'Step event_route (see fn_queue_step): routes events that failed in a batch. Internal.';

-- fn_iu_route_bury(quarantine row) → {dead_lettered}: makes a dead letter of an event whose routing keeps failing.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_route_bury(p_row public.queue_quarantine) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_n bigint;
BEGIN
  INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error,
    event_domain, worker_name)
  SELECT e.id, to_jsonb(e), r.worker_name || ':' || e.id, 'ROUTE_' || p_row.code, p_row.error, e.event_domain,
    r.worker_name
  FROM public.event_outbox e JOIN public.iu_outbound_route r ON r.event_domain = e.event_domain
  WHERE e.id = split_part(p_row.target, '/', 1)::uuid
    AND p_row.target IN (e.id::text, concat_ws('/', e.id, extract(epoch FROM e.created_at)))
  ORDER BY e.created_at, e.created_xid LIMIT 1
  ON CONFLICT (idempotency_key) DO NOTHING;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  RETURN jsonb_build_object('dead_lettered', v_n);
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_route_bury IS 'Makes a dead letter of an event that cannot be routed. Internal.';

CREATE OR REPLACE FUNCTION public.fn_iu_staging_route_worker_run(p_quick boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN public.fn_iu_route_worker_run('staging_outbound', 1000, p_quick);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_staging_route_worker_run TO :"dot_executor", :"workflow_admin";
COMMENT ON FUNCTION public.fn_iu_staging_route_worker_run IS
  'Tick staging_outbound: fn_iu_route_worker_run for the domain staging.';

-- fn_iu_route_worker_health(worker) → {worker_name, healthy, why, last_run_at, age_seconds, stale_after_seconds,
-- events_seen, attempts_written, dead_lettered, open_dead_letters, waiting, oldest_at, routes: [{event_domain, enabled,
-- last_run_at, waiting}]}. last_run_at: the oldest last run of the enabled routes, NULL if one of them never ran.
-- healthy: true only if last_run_at is recent, whatever the reason for a delay. why: '' if healthy.
CREATE OR REPLACE FUNCTION public.fn_iu_route_worker_health(p_worker_name text DEFAULT 'iu_outbound_default')
  RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_interval int;
  v_after bigint;
  v_why text;
  v record;
BEGIN
  IF p_worker_name IS NULL OR p_worker_name NOT IN ('iu_outbound_default', 'staging_outbound') THEN
    RAISE EXCEPTION 'p_worker_name must be iu_outbound_default or staging_outbound' USING ERRCODE = '22023';
  END IF;
  v_interval := public.fn_cfg_int('queue.tick.' || p_worker_name || '.interval_seconds', 60);
  v_after := public.fn_queue_tick_threshold(v_interval,
    public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300));
  SELECT CASE WHEN count(c.last_run_at) FILTER (WHERE b.enabled) = count(*) FILTER (WHERE b.enabled)
      THEN min(c.last_run_at) FILTER (WHERE b.enabled) END AS last_run_at,
    max(c.last_run_at) FILTER (WHERE b.enabled) > clock_timestamp() + interval '5 seconds' AS ahead,
    count(*) FILTER (WHERE b.enabled) AS enabled,
    COALESCE(sum(c.events_seen), 0) AS seen, COALESCE(sum(c.attempts_written), 0) AS written,
      COALESCE(sum(c.dead_lettered), 0) AS dead,
    COALESCE(sum(b.waiting), 0) AS waiting, min(b.oldest_at) AS oldest_at,
    COALESCE(jsonb_agg(jsonb_build_object('event_domain', b.event_domain, 'enabled', b.enabled, 'last_run_at',
      c.last_run_at,
      'waiting', b.waiting) ORDER BY b.event_domain), '[]') AS routes
  INTO v
  FROM public.fn_iu_route_backlog() b
  LEFT JOIN public.iu_route_worker_cursor c ON c.worker_name = b.worker_name AND c.event_domain = b.event_domain
  WHERE b.worker_name = p_worker_name;
  v_why := CASE
    WHEN v.last_run_at >= now() - make_interval(secs => v_after) AND NOT v.ahead THEN ''
    WHEN NOT public.fn_cfg_bool('iu_core.route_worker_enabled') THEN 'iu_core.route_worker_enabled is off'
    WHEN NOT public.fn_cfg_bool('iu_core.routes_master_enabled') THEN 'iu_core.routes_master_enabled is off'
    WHEN v_interval = 0 THEN 'queue.tick.' || p_worker_name || '.interval_seconds is 0'
    WHEN v.enabled = 0 THEN 'the worker has no enabled route'
    WHEN v.last_run_at IS NULL THEN 'the worker has not run all its routes yet'
    WHEN v.ahead THEN 'its last run lies ahead of the clock of the server'
    ELSE 'silent since ' || to_char(v.last_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') END;
  RETURN jsonb_build_object('worker_name', p_worker_name, 'healthy', v_why = '', 'why', v_why, 'last_run_at',
    v.last_run_at,
    'age_seconds', floor(public.fn_age(v.last_run_at))::bigint, 'stale_after_seconds', v_after,
    'events_seen', v.seen, 'attempts_written', v.written, 'dead_lettered', v.dead,
    'open_dead_letters', (SELECT count(*) FROM public.iu_route_dead_letter d WHERE d.resolved_at IS NULL
      AND d.worker_name = p_worker_name),
    'waiting', v.waiting, 'oldest_at', v.oldest_at, 'routes', v.routes);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_worker_health TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_iu_route_worker_health IS
  'Health of a route worker (DP4 §2): healthy only if it ran recently, so that silence does not count as health.';

-- fn_consumer_set(consumer, domain, type, kind, executor, enabled, actor, reason, dry_run) → {consumer_id, created,
-- before, after, audit_id}: creates or changes a consumer; NULL keeps the current value. The consumer gets the events
-- that are routed from then on. Refused: not_found (a new consumer needs a domain, type, kind and executor); event_type
-- (the type is not registered).
CREATE OR REPLACE FUNCTION public.fn_consumer_set(p_consumer_id text, p_event_domain text, p_event_type text,
  p_job_kind text, p_executor text,
  p_enabled boolean, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_old public.consumer_registry;
  v_new public.consumer_registry;
  v_there boolean;
  v_rule text;
  v_audit bigint;
BEGIN
  IF COALESCE(p_consumer_id, '') !~ '^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,99}$' THEN
    RAISE EXCEPTION 'p_consumer_id must match ^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,99}$' USING ERRCODE = '22023';
  ELSIF p_job_kind !~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$' THEN
    RAISE EXCEPTION 'p_job_kind must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$' USING ERRCODE = '22023';
  ELSIF p_executor NOT IN (:executor_kinds) THEN
    RAISE EXCEPTION 'p_executor must be %', public.fn_words(ARRAY[:executor_kinds], 'or') USING ERRCODE = '22023';
  END IF;
  PERFORM public.fn_queue_lease_wait('consumer_registry'::text);
  SELECT * INTO v_old FROM public.consumer_registry WHERE consumer_id = p_consumer_id FOR UPDATE;
  v_there := FOUND;
  v_new := v_old;
  v_new.consumer_id := p_consumer_id;
  v_new.event_domain := COALESCE(p_event_domain, v_old.event_domain);
  v_new.event_type := COALESCE(p_event_type, v_old.event_type);
  v_new.job_kind := COALESCE(p_job_kind, v_old.job_kind);
  v_new.executor := COALESCE(p_executor, v_old.executor);
  v_new.enabled := COALESCE(p_enabled, v_old.enabled, true);
  v_new.updated_by := v_actor;
  v_new.updated_at := now();
  IF NOT v_there THEN
    v_new.registered_by := v_actor;
    v_new.registered_at := now();
  END IF;
  v_rule := CASE
    WHEN num_nulls(v_new.event_domain, v_new.event_type, v_new.job_kind, v_new.executor) > 0 THEN 'not_found'
    WHEN NOT EXISTS (SELECT 1 FROM public.event_type_registry r WHERE r.event_domain = v_new.event_domain
      AND r.event_type = v_new.event_type)
      THEN 'event_type' END;
  IF v_rule IS NOT NULL THEN
    IF NOT v_dry THEN
      v_audit := public.fn_operator_audit(
        p_action => 'consumer_set', p_target => p_consumer_id, p_actor => v_actor, p_reason => v_reason,
        p_outcome => 'refused: ' || v_rule,
        p_filter => NULL::text, p_frozen_count => NULL::bigint, p_before => NULL::jsonb, p_after => NULL::jsonb);
    END IF;
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'dry_run', v_dry, 'audit_id', v_audit, 'reason',
      CASE v_rule
      WHEN 'not_found' THEN format('there is no consumer %s: a new one needs domain, type, kind and executor',
        p_consumer_id)
      ELSE left(format('event type %s/%s is not registered; qtop event-type set registers it',
        v_new.event_domain, v_new.event_type), 300) END);
  END IF;
  IF NOT v_dry THEN
    INSERT INTO public.consumer_registry VALUES (v_new.*)
    ON CONFLICT (consumer_id) DO UPDATE SET event_domain = excluded.event_domain, event_type = excluded.event_type,
      job_kind = excluded.job_kind, executor = excluded.executor, enabled = excluded.enabled,
      updated_by = excluded.updated_by, updated_at = excluded.updated_at;
    v_audit := public.fn_operator_audit(
      p_action => 'consumer_set', p_target => p_consumer_id, p_actor => v_actor, p_reason => v_reason,
      p_before => CASE WHEN v_there THEN to_jsonb(v_old) END, p_after => to_jsonb(v_new),
      p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
  END IF;
  RETURN jsonb_build_object('consumer_id', p_consumer_id, 'created', NOT v_there, 'dry_run', v_dry,
    'before', CASE WHEN v_there THEN to_jsonb(v_old) END, 'after', to_jsonb(v_new), 'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_consumer_set TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_consumer_set IS
  'Creates, changes, enables or disables a consumer of events (DP6 §3.4).';

-- fn_iu_outbound_route_set(domain, enabled, actor, reason, dry_run) → {event_domain, before, after, audit_id}: switches
-- the route of a domain on or off. While it is off, the events of the domain wait. Refused: not_found (no such route).
CREATE OR REPLACE FUNCTION public.fn_iu_outbound_route_set(p_event_domain text, p_enabled boolean, p_actor text,
  p_reason text, p_dry_run boolean DEFAULT false)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_old public.iu_outbound_route;
  v_new public.iu_outbound_route;
  v_audit bigint;
BEGIN
  IF p_enabled IS NULL THEN
    RAISE EXCEPTION 'p_enabled must be true or false' USING ERRCODE = '22023';
  END IF;
  SELECT * INTO v_old FROM public.iu_outbound_route WHERE event_domain = p_event_domain FOR UPDATE;
  IF NOT FOUND THEN
    IF NOT v_dry THEN
      v_audit := public.fn_operator_audit(
        p_action => 'route_set', p_target => left(COALESCE(p_event_domain, ''), 100), p_actor => v_actor,
        p_reason => v_reason, p_outcome => 'refused: not_found',
        p_filter => NULL::text, p_frozen_count => NULL::bigint, p_before => NULL::jsonb, p_after => NULL::jsonb);
    END IF;
    RETURN jsonb_build_object('refused', true, 'rule', 'not_found', 'dry_run', v_dry, 'audit_id', v_audit,
      'reason', format('no event type of domain %s is registered, so it has no route; qtop event-type set registers '
      'one', left(COALESCE(p_event_domain, ''), 100)));
  END IF;
  v_new := v_old;
  v_new.enabled := p_enabled;
  v_new.updated_by := v_actor;
  v_new.updated_at := now();
  IF NOT v_dry THEN
    UPDATE public.iu_outbound_route SET enabled = p_enabled, updated_by = v_actor, updated_at = now()
      WHERE event_domain = p_event_domain;
    v_audit := public.fn_operator_audit(
      p_action => 'route_set', p_target => p_event_domain, p_actor => v_actor, p_reason => v_reason,
      p_before => to_jsonb(v_old), p_after => to_jsonb(v_new),
      p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
  END IF;
  RETURN jsonb_build_object('event_domain', p_event_domain, 'dry_run', v_dry, 'before', to_jsonb(v_old), 'after',
    to_jsonb(v_new), 'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_outbound_route_set TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_iu_outbound_route_set IS
  'Enables or disables the routing of one domain; while it is disabled, its events wait.';
