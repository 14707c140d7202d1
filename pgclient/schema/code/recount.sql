-- Compares counters and derived rows with their source tables, and corrects them. Rows that are loaded without triggers
-- (logical replication, pg_restore --disable-triggers, session_replication_role = replica) are not counted, and do not
-- create their queue lane, open dead letter or endpoint row: without a correction they would never be claimed or shown.
-- A leased job whose lease was deleted, or left out by a partial restore, would stay leased for ever.
-- A row and what its trigger counts commit together, so one snapshot sees both or neither. The difference that a single
-- statement finds is therefore exact, whatever other sessions write, and is corrected with a counter delta, without a
-- table lock. The counters per minute, which are kept for two hours, are not corrected.

-- fn_queue_counter_drift(most) → (scope, k1, k2, k3, found, counted): the keys whose counter differs from its table;
-- and per derived table (scope is its name, k1 NULL, counted 0) how many rows are missing or superfluous. most: tables
-- larger than this many bytes are not compared, and are returned with found NULL; NULL = no limit.
CREATE OR REPLACE FUNCTION public.fn_queue_counter_drift(p_most bigint)
RETURNS TABLE (scope text, k1 text, k2 text, k3 text, found bigint, counted bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
  c_live CONSTANT text[] := '{queued,scheduled,leased,in_progress,retry_waiting}'::text[];
  v_big text[] := ARRAY(SELECT t FROM unnest('{job_queue,job_history,job_dead_letter,iu_route_dead_letter,
    webhook_delivery_sagas,webhook_delivery_jobs,dead_letters,iu_notification_pending,subscriptions}'::text[]) t
    WHERE (SELECT sum(pg_relation_size(c.oid)) FROM pg_class c WHERE c.oid = to_regclass('public.' || t)
      OR c.oid IN (SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = to_regclass('public.' || t))) > p_most);
BEGIN
  RETURN QUERY
  WITH compared (source, scope) AS (
    SELECT * FROM (VALUES ('job_queue', 'job'), ('job_history', 'job'), ('job_dead_letter', 'dead_job'),
      ('iu_route_dead_letter', 'dead_event'), ('webhook_delivery_sagas', 'saga'),
      ('webhook_delivery_jobs', 'webhook_job'), ('dead_letters', 'dead_webhook'),
      ('iu_notification_pending', 'notification_pending')) s (source, scope) WHERE s.source <> ALL (v_big)
  ), actual (source, k1, k2, k3, n) AS (
    SELECT 'job_queue', q.job_kind, q.event_domain,
      CASE WHEN q.status = 'queued' AND NOT q.ready THEN 'scheduled' ELSE q.status END, count(*)
    FROM public.job_queue q WHERE 'job_queue' <> ALL (v_big) GROUP BY 2, 3, 4
    UNION ALL SELECT 'job_history', h.job_kind, h.event_domain, h.status, count(*)
    FROM public.job_history h WHERE 'job_history' <> ALL (v_big) GROUP BY 2, 3, 4
    UNION ALL SELECT 'job_dead_letter', d.failure_code, d.job_kind, d.event_domain, count(*)
    FROM public.job_dead_letter d WHERE d.resolved_at IS NULL AND 'job_dead_letter' <> ALL (v_big) GROUP BY 2, 3, 4
    UNION ALL SELECT 'iu_route_dead_letter', d.failure_code, d.event_type, d.event_domain, count(*)
    FROM public.iu_route_dead_letter d WHERE d.resolved_at IS NULL AND 'iu_route_dead_letter' <> ALL (v_big)
    GROUP BY 2, 3, 4
    UNION ALL SELECT 'webhook_delivery_sagas', s.subscription_id::text, s.status::text, '', count(*)
    FROM public.webhook_delivery_sagas s WHERE 'webhook_delivery_sagas' <> ALL (v_big) GROUP BY 2, 3
    UNION ALL SELECT 'webhook_delivery_jobs', j.status::text, '', '', count(*)
    FROM public.webhook_delivery_jobs j WHERE 'webhook_delivery_jobs' <> ALL (v_big) GROUP BY 2
    UNION ALL SELECT 'dead_letters', o.final_error_code, o.subscription_id::text, '', count(*)
    FROM public.dead_letter_open o WHERE 'dead_letters' <> ALL (v_big) GROUP BY 2, 3
    UNION ALL SELECT 'iu_notification_pending', CASE WHEN p.failed_at IS NULL THEN 'waiting' ELSE 'failed' END, '', '',
      count(*)
    FROM public.iu_notification_pending p
    WHERE p.processed_at IS NULL AND 'iu_notification_pending' <> ALL (v_big) GROUP BY 2
  ), merged AS (
    SELECT r.source, r.k1, r.k2, r.k3, r.n AS found, 0 AS counted FROM actual r
    UNION ALL
    SELECT x.source, c.k1, c.k2, c.k3, 0, c.n FROM compared x JOIN public.v_queue_counter_part c ON c.scope = x.scope
      AND (x.scope <> 'job' OR (c.k3 = ANY (c_live)) = (x.source = 'job_queue'))
  )
  SELECT x.scope, b.k1, b.k2, b.k3, sum(b.found)::bigint, sum(b.counted)::bigint
  FROM merged b JOIN compared x ON x.source = b.source
  GROUP BY 1, 2, 3, 4 HAVING sum(b.found) <> sum(b.counted)
  UNION ALL
  SELECT 'job_lane', NULL, NULL, NULL, count(*), 0 FROM (
    SELECT q.event_domain, q.job_kind FROM public.job_queue q WHERE 'job_queue' <> ALL (v_big)
    EXCEPT SELECT l.event_domain, l.job_kind FROM public.job_lane l) l HAVING count(*) > 0
  UNION ALL
  SELECT 'job_lease', NULL, NULL, NULL, count(*), 0 FROM public.fn_job_leases_astray() a
  WHERE 'job_queue' <> ALL (v_big) HAVING count(*) > 0
  UNION ALL
  SELECT 'dead_letter_open', NULL, NULL, NULL, count(*), 0 FROM public.fn_webhook_dead_letters_astray() a
  WHERE 'dead_letters' <> ALL (v_big) HAVING count(*) > 0
  UNION ALL
  SELECT t.name, NULL, NULL, NULL, count(*), 0
  FROM public.subscriptions s CROSS JOIN (VALUES ('webhook_endpoint_state'), ('webhook_rate_bucket')) t (name)
  WHERE 'subscriptions' <> ALL (v_big) AND CASE t.name WHEN 'webhook_rate_bucket'
    THEN NOT EXISTS (SELECT FROM public.webhook_rate_bucket b WHERE b.subscription_id = s.id)
    ELSE NOT EXISTS (SELECT FROM public.webhook_endpoint_state e WHERE e.subscription_id = s.id) END
  GROUP BY t.name
  UNION ALL
  SELECT 'queue_counter_rank', NULL, NULL, NULL, count(*), 0
  FROM public.v_queue_counter_ranked w FULL JOIN public.queue_counter_rank r
    ON r.scope = w.scope AND r.k1 = w.k1 AND r.k2 = w.k2 AND r.k3 = w.k3
  WHERE COALESCE(w.n, 0) <> COALESCE(r.n, 0) HAVING count(*) > 0
  UNION ALL
  SELECT b, NULL, NULL, NULL, NULL, NULL FROM unnest(v_big) b;
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_counter_drift TO :"queue_viewer", :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_counter_drift IS
  'Where counters and derived rows differ from their tables; tables above a size in bytes are not compared.';

-- fn_webhook_dead_letters_astray() → ids of dead letters that are missing in dead_letter_open, or in it although not
-- open. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_dead_letters_astray() RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
  RETURN QUERY SELECT COALESCE(d.id, o.dead_letter_id) FROM public.dead_letter_open o
  FULL JOIN (SELECT l.id FROM public.dead_letters l
    WHERE NOT EXISTS (SELECT FROM public.dead_letter_requeues q WHERE q.dead_letter_id = l.id)
      AND NOT EXISTS (SELECT FROM public.dead_letter_resolutions x WHERE x.dead_letter_id = l.id)) d
    ON d.id = o.dead_letter_id
  WHERE d.id IS NULL OR o.dead_letter_id IS NULL ORDER BY 1;
END $$;
COMMENT ON FUNCTION public.fn_webhook_dead_letters_astray IS
  'Dead letters for which dead_letter_open is wrong. Internal.';

-- fn_job_leases_astray() → the tokens of leases that are missing although jobs have them, that do not name one of their
-- jobs, or whose number of jobs is wrong. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_leases_astray() RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
  RETURN QUERY SELECT COALESCE(l.lease_token, q.lease_token) FROM public.job_lease l
  FULL JOIN (SELECT x.lease_token, count(*) AS n, array_agg(x.job_id) AS ids FROM public.job_queue x
    WHERE x.lease_token IS NOT NULL GROUP BY 1) q ON q.lease_token = l.lease_token
  WHERE l.live IS DISTINCT FROM q.n OR NOT q.ids <@ l.job_ids ORDER BY 1;
END $$;
COMMENT ON FUNCTION public.fn_job_leases_astray IS
  'Leases that are missing or wrong, compared with the jobs that have their token. Internal.';

-- fn_job_leases_mend(): writes each lease that is missing or wrong as its jobs say, and deletes those without jobs. A
-- worker that still has the token goes on; otherwise the reaper returns the jobs when lease_until is over. Where
-- another session has locked the lease, or a job whose lease is missing, the next recount corrects it. The row gets a
-- new xid, because a lease of an old transaction must not get more jobs: see step 6 of job_watermark.sql. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_leases_mend() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  v_astray uuid[] := ARRAY(SELECT a FROM public.fn_job_leases_astray() a);
  v_locked uuid[];
  v_jobs uuid[];
  v_old public.job_lease[];
BEGIN
  IF v_astray = '{}' THEN
    RETURN;
  END IF;
  v_locked := ARRAY(SELECT l.lease_token FROM public.job_lease l WHERE l.lease_token = ANY (v_astray)
    ORDER BY l.lease_token FOR UPDATE SKIP LOCKED);
  v_jobs := ARRAY(SELECT q.job_id FROM public.job_queue q WHERE q.lease_token IN (SELECT unnest(v_astray)
    EXCEPT SELECT l.lease_token FROM public.job_lease l) ORDER BY q.job_id FOR UPDATE SKIP LOCKED);
  v_locked := v_locked || ARRAY(SELECT q.lease_token FROM public.job_queue q
    WHERE q.lease_token IN (SELECT unnest(v_astray) EXCEPT SELECT l.lease_token FROM public.job_lease l)
    GROUP BY 1 HAVING bool_and(q.job_id IN (SELECT unnest(v_jobs))));
  v_locked := ARRAY(SELECT a FROM public.fn_job_leases_astray() a WHERE a IN (SELECT unnest(v_locked)));
  WITH gone AS (DELETE FROM public.job_lease l WHERE l.lease_token = ANY (v_locked) RETURNING l.*)
  SELECT COALESCE(array_agg(ROW(g.*)::public.job_lease), '{}') INTO v_old FROM gone g;
  INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, claimed_at, lease_until, job_ids, live,
    claimed_by)
  SELECT q.lease_token, q.owner, COALESCE(o.subscription_id, (
      SELECT s.subscription_id FROM public.job_subscription s
      WHERE s.executor_id = q.owner AND COALESCE(s.job_kind, q.kind) = q.kind
        AND COALESCE(s.event_domain, q.domain) = q.domain
      ORDER BY NOT s.enabled, s.job_kind, s.event_domain LIMIT 1), '00000000-0000-0000-0000-000000000000'),
    COALESCE(o.claimed_at, q.picked_at, now()), COALESCE(o.lease_until, q.until, now()), q.ids, q.n, o.claimed_by
  FROM (SELECT x.lease_token, min(x.lease_owner) AS owner, min(x.job_kind) AS kind, min(x.event_domain) AS domain,
      min(x.picked_at) AS picked_at, max(x.lease_until) AS until, array_agg(x.job_id) AS ids, count(*)::int AS n
    FROM public.job_queue x WHERE x.lease_token IN (SELECT unnest(v_locked)) GROUP BY 1) q
  LEFT JOIN unnest(v_old) o ON o.lease_token = q.lease_token;
END $$;
COMMENT ON FUNCTION public.fn_job_leases_mend IS 'Writes leases that are missing or wrong as their jobs say. Internal.';

-- fn_queue_recount(actor, reason, dry_run) → {action, dry_run, counters, job_lane, job_lease, dead_letter_open,
-- webhook_endpoint_state, webhook_rate_bucket, queue_counter_rank, drift: [{scope, k1, k2, k3, found, counted}],
-- audit_id}: corrects the differences that fn_queue_counter_drift finds. The numbers count keys and rows; drift has the
-- first 100. One run at a time. It locks only four kinds of rows that other sessions write: leases that are wrong and
-- jobs whose lease is missing, both without waiting; rows of queue_counter_rank that differ and, in its last step,
-- dead letters for which dead_letter_open is wrong.
CREATE OR REPLACE FUNCTION public.fn_queue_recount(p_actor text, p_reason text, p_dry_run boolean DEFAULT false)
  RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_dead_letters bigint[];
  v_out jsonb;
BEGIN
  IF NOT v_dry THEN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
      RAISE EXCEPTION 'this transaction is %: call fn_queue_recount in READ COMMITTED, so that it sees what an earlier '
        'recount has corrected', current_setting('transaction_isolation')
        USING ERRCODE = '25001';
    END IF;
    PERFORM public.fn_queue_lease_wait('recount'::text);
  END IF;
  WITH drift AS MATERIALIZED (
    SELECT * FROM public.fn_queue_counter_drift(NULL::bigint)
  ), corrected AS (
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    SELECT d.scope, d.k1, d.k2, d.k3, d.found - d.counted FROM drift d WHERE d.k1 IS NOT NULL AND NOT v_dry
  )
  SELECT jsonb_build_object('action', 'recount', 'dry_run', v_dry, 'counters', count(d.k1),
    'job_lane', COALESCE(sum(d.found) FILTER (WHERE d.scope = 'job_lane'), 0),
    'job_lease', COALESCE(sum(d.found) FILTER (WHERE d.scope = 'job_lease'), 0),
    'dead_letter_open', COALESCE(sum(d.found) FILTER (WHERE d.scope = 'dead_letter_open'), 0),
    'webhook_endpoint_state', COALESCE(sum(d.found) FILTER (WHERE d.scope = 'webhook_endpoint_state'), 0),
    'webhook_rate_bucket', COALESCE(sum(d.found) FILTER (WHERE d.scope = 'webhook_rate_bucket'), 0),
    'queue_counter_rank', COALESCE(sum(d.found) FILTER (WHERE d.scope = 'queue_counter_rank'), 0),
    'drift', COALESCE((SELECT jsonb_agg(to_jsonb(x)) FROM (SELECT * FROM drift f WHERE f.k1 IS NOT NULL
      ORDER BY f.scope, f.k1, f.k2, f.k3 LIMIT 100) x), '[]'))
  INTO v_out FROM drift d;
  IF v_dry THEN
    RETURN v_out;
  END IF;
  INSERT INTO public.job_lane (event_domain, job_kind)
  SELECT q.event_domain, q.job_kind FROM public.job_queue q
  EXCEPT SELECT l.event_domain, l.job_kind FROM public.job_lane l;
  IF (v_out ->> 'job_lease')::bigint > 0 THEN
    PERFORM public.fn_job_leases_mend();
  END IF;
  INSERT INTO public.webhook_endpoint_state (subscription_id)
  SELECT s.id FROM public.subscriptions s ORDER BY s.id ON CONFLICT DO NOTHING;
  INSERT INTO public.webhook_rate_bucket (subscription_id)
  SELECT s.id FROM public.subscriptions s ORDER BY s.id ON CONFLICT DO NOTHING;
  -- A session that opens or closes a dead letter locks its row, so a row that is still wrong under our lock cannot
  -- change.
  v_dead_letters := ARRAY(SELECT a FROM public.fn_webhook_dead_letters_astray() a);
  PERFORM 1 FROM public.dead_letters d WHERE d.id = ANY (v_dead_letters) ORDER BY d.id FOR NO KEY UPDATE;
  v_dead_letters := ARRAY(SELECT a FROM public.fn_webhook_dead_letters_astray() a WHERE a = ANY (v_dead_letters));
  WITH gone AS (
    DELETE FROM public.dead_letter_open o WHERE o.dead_letter_id = ANY (v_dead_letters) RETURNING o.dead_letter_id
  )
  INSERT INTO public.dead_letter_open (dead_letter_id, final_error_code, subscription_id, failed_at)
  SELECT d.id, d.final_error_code, d.subscription_id, d.failed_at FROM public.dead_letters d
  WHERE d.id = ANY (v_dead_letters) AND d.id NOT IN (SELECT g.dead_letter_id FROM gone g);
  IF (v_out ->> 'queue_counter_rank')::bigint > 0 THEN
    LOCK TABLE public.queue_counter_rank IN SHARE ROW EXCLUSIVE MODE; -- a concurrent fold waits, or has ended
    DELETE FROM public.queue_counter_rank r WHERE r.n <> 0 AND NOT EXISTS (SELECT FROM public.v_queue_counter_ranked w
      WHERE w.scope = r.scope AND w.k1 = r.k1 AND w.k2 = r.k2 AND w.k3 = r.k3);
    INSERT INTO public.queue_counter_rank AS r (scope, k1, k2, k3, n)
    SELECT w.scope, w.k1, w.k2, w.k3, w.n FROM public.v_queue_counter_ranked w
    ON CONFLICT (scope, k1, k2, k3) DO UPDATE SET n = excluded.n WHERE r.n <> excluded.n;
  END IF;
  RETURN v_out || jsonb_build_object('audit_id', public.fn_operator_audit(
    p_action => 'recount'::text, p_target => 'counters and lanes'::text, p_actor => v_actor, p_reason => v_reason,
    p_filter => NULL::text, p_frozen_count => (v_out ->> 'counters')::bigint, p_before => NULL::jsonb,
    p_after => v_out - ARRAY['action', 'dry_run'], p_outcome => 'done'::text));
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_recount TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_recount IS
  'Corrects counters, queue lanes, leases, open dead letters and endpoint rows, while other sessions write.';
