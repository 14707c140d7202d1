-- The snapshot that all consoles share: its sections, and the rules for which session computes it. Sources: DP4 §8, DP1
-- §10.

COMMENT ON TABLE public.queue_snapshot IS
  'The last snapshot, shared by all consoles. Read it with fn_queue_picture.';

-- fn_queue_snapshot_parts() → the sections of the snapshot, computed now. Internal.
-- Rows that several sections need are read once and passed to each of them. The settings of this function also apply to
-- the functions of the sections: their statements are planned once per session, since planning them again costs twice
-- as much as running them. The result is json and not jsonb: json is assembled by copying its parts, while jsonb would
-- parse and rebuild each part.
CREATE OR REPLACE FUNCTION public.fn_queue_snapshot_parts() RETURNS json
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off AS $fn$
DECLARE
  v_watch public.v_queue_watch[] := ARRAY(SELECT w FROM public.v_queue_watch w);
  v_jobs public.v_job_backlog[] := ARRAY(SELECT b FROM public.v_job_backlog b);
  v_routes public.v_iu_route_backlog[] := ARRAY(SELECT b FROM public.v_iu_route_backlog b);
  v_hooks public.v_webhook_backlog[] := ARRAY(SELECT b FROM public.v_webhook_backlog b);
  v_unfolded public.v_queue_counter_part[] := public.fn_queue_counter_unfolded_sums();
  v_unrouted record := public.fn_webhook_unrouted();
  v_total record := public.fn_dead_letter_total(1000, v_unfolded);
  -- all groups, or, if there are more than 200 (there may be hundreds of thousands), only the largest and the newest
  v_dead public.v_dead_letter_group[] := ARRAY(SELECT g FROM public.fn_dead_letter_top(
    CASE WHEN v_total.groups <= 200 THEN 200 ELSE 10 END, 5, v_unfolded) g);
  v_ticks public.v_queue_scheduler_status[] := ARRAY(SELECT ROW(s.*)::public.v_queue_scheduler_status
    FROM public.fn_queue_scheduler_rows(v_watch) s);
  v_lanes public.snapshot_lane[] := public.fn_snapshot_lanes(v_jobs, v_watch, v_unfolded);
  v_alerts public.v_queue_alert[] := ARRAY(SELECT ROW(a.*)::public.v_queue_alert
    FROM public.fn_queue_alert_rows(v_lanes, v_hooks, v_routes, v_watch, p_unrouted => v_unrouted.waiting,
      p_unrouted_at => v_unrouted.oldest_at) a);
BEGIN
  RETURN json_build_object(
    'flags', public.fn_snapshot_flags(),
    'queues', public.fn_snapshot_queues(v_lanes),
    'health', public.fn_snapshot_health(v_jobs, v_hooks, CASE WHEN v_total.groups <= cardinality(v_dead) THEN v_dead
      ELSE ARRAY(SELECT s FROM public.fn_dead_letter_subjects(v_dead, 10, v_unfolded) s) END, v_ticks, v_watch),
    'alerts', public.fn_snapshot_alerts(v_alerts),
    'executors', public.fn_snapshot_executors(v_alerts, v_watch),
    'dead_groups', public.fn_snapshot_dead_groups(v_dead, v_unfolded),
    'dead_more', json_build_object('groups', greatest(v_total.groups - cardinality(v_dead), 0),
      'groups_bound', v_total.bounded,
      'open', greatest(v_total.open - COALESCE((SELECT sum(g.open) FROM unnest(v_dead) g), 0), 0)),
    'job_subscriptions', public.fn_snapshot_job_subscriptions(),
    'job_leases', public.fn_snapshot_job_leases(),
    'job_table', public.fn_snapshot_job_table(),
    'waiting', public.fn_snapshot_waiting(v_lanes, v_hooks, v_routes, v_watch, p_unrouted => v_unrouted.waiting,
      p_unrouted_at => v_unrouted.oldest_at, p_unfolded => v_unfolded),
    'operations', public.fn_snapshot_operations(),
    'hosts', public.fn_snapshot_hosts(),
    'held', public.fn_snapshot_held(),
    'suspended', public.fn_snapshot_suspended(),
    'ticks', public.fn_snapshot_ticks(v_ticks),
    'flow', public.fn_snapshot_flow(v_total.open, v_unfolded),
    'marks', public.fn_snapshot_marks(),
    'actions', public.fn_snapshot_actions(),
    'monitoring_off', public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300) >= 1000000,
    'server', public.fn_snapshot_server());
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_snapshot_parts IS
  'Computes the sections of the snapshot. Internal.';

-- fn_snapshot_flags() → the section flags, one object per flag: its value, and who set it, when and why. off: a switch
-- that is off although its default is on. invalid: the value is unreadable or out of bounds. reverts_at, reverts_to:
-- when the flag reverts, and to which value. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_flags() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(f ORDER BY f.key) FROM (
    SELECT c.key, c.value, c.description, COALESCE(r.kind, 'text') AS kind, c.updated_at, c.updated_by,
      COALESCE(a.reason, '') AS reason,
      COALESCE(r.switch AND c.value IN ('false', '0') AND r.default_value <> c.value, false) AS off,
      -- the same check as fn_cfg_readable, inlined to save one call per flag
      NOT COALESCE(CASE r.kind WHEN 'boolean' THEN c.value IN ('true', 'false') WHEN 'integer'
        THEN CASE WHEN length(c.value) BETWEEN 1 AND 9 AND rtrim(c.value, '0123456789') = ''
          THEN c.value::int BETWEEN COALESCE(r.lowest, 0) AND COALESCE(r.highest, 999999999) ELSE false END
        ELSE c.value = ANY (r.choices) END, true) AS invalid,
      v.revert_at AS reverts_at, COALESCE(v.revert_to, '') AS reverts_to,
      COALESCE(v.revert_at <= now(), false) AS overdue
    FROM public.dot_config c
    LEFT JOIN public.dot_config_rule r USING (key)
    LEFT JOIN public.dot_config_revert v USING (key)
    LEFT JOIN LATERAL (
      SELECT q.reason FROM public.queue_operator_action q
      WHERE c.updated_by <> 'migration' AND q.target = c.key AND q.action IN ('flag_set', 'flag_revert')
        AND q.outcome = 'done'
      ORDER BY q.id DESC LIMIT 1) a ON true) f), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_flags IS 'Section of the snapshot: the flags. Internal.';

-- fn_snapshot_flow(open dead letters, unfolded counters) → the section flow: for each of the last 60 minutes,
-- oldest first, how many webhooks were delivered, how many dead letters were added and how many jobs ended; how many
-- hosts have sent a heartbeat within the last 15 seconds; how many dead letters are open. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_flow(p_dead_open bigint, p_unfolded public.v_queue_counter_part[])
  RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_minute bigint := extract(epoch FROM date_trunc('minute', now()))::bigint;
  -- bucket starts are epochs of ten digits, so they can be compared as text
  v_hour_ago text := (v_minute - 3600)::text;
BEGIN
  RETURN (WITH b AS (
    SELECT (v_minute - c.k3::bigint) / 60 AS back, sum(c.n) FILTER (WHERE c.scope = 'delivered_1m') AS delivered,
      sum(c.n) FILTER (WHERE c.scope = 'dead_1m') AS dead, sum(c.n) FILTER (WHERE c.scope = 'job_done_1m') AS jobs
    FROM (SELECT q.scope, q.k3, q.n FROM public.queue_counter q
      UNION ALL SELECT d.scope, d.k3, d.n FROM unnest(p_unfolded) d) c
    WHERE c.scope IN ('delivered_1m', 'dead_1m', 'job_done_1m') AND c.k3 COLLATE "C" > v_hour_ago GROUP BY 1
  )
  SELECT json_build_object(
    'delivered', json_agg(COALESCE(x.delivered, 0)), 'dead', json_agg(COALESCE(x.dead, 0)),
    'jobs', json_agg(COALESCE(x.jobs, 0)),
    'hosts_alive', (SELECT count(*) FROM public.queue_host q
      WHERE q.stopped_at IS NULL AND q.last_seen_at > now() - interval '15 seconds'
        AND q.last_seen_at <= clock_timestamp() + interval '5 seconds'),
    'dead_open', p_dead_open)
  FROM (SELECT b.* FROM generate_series(0, 59) g LEFT JOIN b ON b.back = g ORDER BY g DESC) x);
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_flow IS
  'Section of the snapshot: the last hour by the minute, live hosts, open dead letters. Internal.';

-- fn_snapshot_operations() → the section operations: up to 50 bulk operations that have not ended; running operations
-- first, then newest first. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_operations() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(o ORDER BY o.state = 'running' DESC, o.operation_id DESC) FROM (
    SELECT b.operation_id, b.kind, b.filter, b.created_by, b.created_at, b.reason, b.state,
      COALESCE(b.state_why, '') AS state_why,
      b.state_by, b.state_at, b.started_at, b.rate_per_second::float8 AS rate_per_second, b.brake_percent, b.canary,
      b.canary_passed,
      b.frozen_count, b.requeued, public.fn_queue_bulk_sent(b.operation_id, b.done) AS sent, b.done, b.skipped,
      b.failed, b.undone, b.first_ok, b.first_failed, COALESCE(b.waits, '') AS waits
    FROM public.queue_bulk_operation b WHERE b.state = ANY ('{planned,running,paused}'::text[])
    ORDER BY b.state = 'running' DESC, b.operation_id DESC LIMIT 50) o), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_operations IS
  'Section of the snapshot: bulk operations that have not ended. Internal.';

-- fn_snapshot_marks() → the section marks: the newest 20 marks of the last hour, newest first. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_marks() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(m ORDER BY m.at DESC)
    FROM (SELECT k.at, k.label, k.created_by AS by FROM public.queue_mark k
      WHERE k.at BETWEEN now() - interval '1 hour' AND clock_timestamp() + interval '5 seconds'
      ORDER BY k.at DESC LIMIT 20) m), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_marks IS
  'Section of the snapshot: marks of the last hour. Internal.';

-- fn_snapshot_actions() → the section actions: the actions of people within the last hour, newest first, at most 10,
-- from the newest 80 audit rows of people. Rows with the same action, person and reason are one action: rows is their
-- number, target and audit_id are those of the newest row. Not included: batches of bulk operations, because starting
-- an operation is the action; refusals; marks, which have their own section; actions without a person (an expired flag,
-- the brake); and rows of the triggers of tables, which cannot distinguish a person from a host. The conditions are
-- those of the index ix_queue_operator_action_people, so that excluded rows cost nothing, however many there are.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_actions() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(x ORDER BY x.audit_id DESC) FROM (
    SELECT max(q.id) AS audit_id, max(q.at) AS at, q.actor AS by, q.action,
      left((array_agg(q.target ORDER BY q.id DESC))[1], 200) AS target, left(COALESCE(q.reason, ''), 200) AS reason,
      count(*) AS rows
    FROM (SELECT r.id, r.at, r.actor, r.action, r.target, r.reason FROM public.queue_operator_action r
      WHERE r.batch IS NULL AND r.outcome !~~ 'refused%' AND r.action <> ALL (ARRAY['mark', 'flag_revert', 'bulk_brake',
        'webhook_subscription_write', 'job_subscription_write', 'event_subscription_write']) AND r.outcome <> 'failed'
      ORDER BY r.id DESC LIMIT 80) q
    WHERE q.at BETWEEN now() - interval '1 hour' AND clock_timestamp() + interval '5 seconds'
    GROUP BY q.actor, q.action, q.reason ORDER BY max(q.id) DESC LIMIT 10) x), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_actions IS
  'Section of the snapshot: what people did within the last hour. Internal.';

-- fn_snapshot_server() → the section server: version; database; clone_of, the database that this one is a copy of (''
-- if it is not a copy); in_recovery; replay_lag_seconds, how far a standby is behind (NULL on a primary). Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_server() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN json_build_object('version', current_setting('server_version'), 'database', current_database(),
    'clone_of', COALESCE(public.fn_queue_clone_of(), ''),
    'in_recovery', pg_is_in_recovery(), 'replay_lag_seconds', CASE WHEN NOT pg_is_in_recovery() THEN NULL
      -- after all was replayed, the time of the last commit says only how long the primary has been idle
      WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() AND EXISTS (SELECT FROM pg_stat_wal_receiver w
        WHERE w.status IS NULL OR w.status = 'streaming') THEN 0
      ELSE public.fn_age(pg_last_xact_replay_timestamp()) END);
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_server IS 'Section of the snapshot: the server. Internal.';

-- fn_queue_picture(max age) → the snapshot (body), when it was computed (taken_at), in how many ms (took_ms), and
-- shared: true = the stored snapshot.
--
-- 1. If the stored snapshot is younger than max age, it is returned.
-- 2. Otherwise the session that gets the row lock of the lease queue_snapshot (SKIP LOCKED, held until its transaction
--    ends) computes a new snapshot and stores it for all consoles.
--    Max age 0: a session that does not get the lock computes its own at once. It never gets a snapshot from before its
--    call: the caller may have just changed what it reads.
-- 3. The other sessions accept a stored snapshot of up to five times max age (at least 5 s), and wait up to about one
--    second for the new one. After that each computes its own: a transaction that stays open with the lock must not
--    block the screens.
-- 4. In a read-only transaction, under isolation repeatable read or serializable, and while nothing can be written (as
--    on a full disk), a session skips steps 2 and 3, computes its own snapshot and stores nothing. On a standby it
--    skips step 1 too.
CREATE OR REPLACE FUNCTION public.fn_queue_picture(p_max_age interval DEFAULT interval '1 second',
  OUT taken_at timestamptz, OUT took_ms numeric, OUT shared boolean, OUT body text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_stored public.queue_snapshot;
  v_start timestamptz := clock_timestamp();
  v_store boolean := NOT pg_is_in_recovery(); -- a standby cannot even read unlogged tables
  v_fits interval := least(p_max_age, interval '1 day');
  v_locked boolean := false;
BEGIN
  IF p_max_age IS NULL OR p_max_age < interval '0' THEN
    RAISE EXCEPTION 'p_max_age must not be negative' USING ERRCODE = '22023';
  END IF;
  IF v_store THEN
    FOR v_try IN 1..40 LOOP
      SELECT * INTO v_stored FROM public.queue_snapshot;
      IF v_stored.taken_at > least(clock_timestamp() - v_fits, v_start) AND v_stored.taken_at <= clock_timestamp() THEN
        taken_at := v_stored.taken_at;
        took_ms := v_stored.took_ms;
        shared := true;
        body := v_stored.body;
        RETURN;
      END IF;
      v_store := current_setting('transaction_read_only') = 'off'
        AND current_setting('transaction_isolation') IN ('read committed', 'read uncommitted');
      EXIT WHEN NOT v_store OR v_locked;
      -- The lock may be free because another session has just stored a snapshot: read it once more.
      BEGIN
        PERFORM 1 FROM public.dot_iu_runtime_lease l WHERE l.lease_name = 'queue_snapshot' FOR UPDATE SKIP LOCKED;
        v_locked := FOUND;
      EXCEPTION WHEN OTHERS THEN -- nothing can be written: compute without the lock
        v_store := false;
        EXIT;
      END;
      IF NOT v_locked THEN
        v_store := false;
        -- without the row of the lease nobody computes a snapshot for others: there is none to wait for
        EXIT WHEN p_max_age = interval '0' OR NOT EXISTS (SELECT FROM public.dot_iu_runtime_lease l
          WHERE l.lease_name = 'queue_snapshot');
        v_fits := greatest(least(p_max_age, interval '1 day'), interval '1 second') * 5;
        PERFORM pg_sleep(CASE WHEN v_try = 1 THEN 0 ELSE 0.025 END);
      END IF;
    END LOOP;
    v_start := clock_timestamp();
  END IF;
  taken_at := v_start;
  shared := false;
  body := public.fn_queue_snapshot_parts();
  took_ms := round(extract(epoch FROM clock_timestamp() - v_start)::numeric * 1000, 2);
  IF v_store THEN
    BEGIN
      INSERT INTO public.queue_snapshot (taken_at, took_ms, body) VALUES (v_start, took_ms, body)
      ON CONFLICT (one) DO UPDATE SET taken_at = excluded.taken_at, took_ms = excluded.took_ms, body = excluded.body;
    EXCEPTION WHEN OTHERS THEN -- as on a full disk: this session still returns its snapshot
      RAISE LOG 'qtop: the snapshot was not stored for other consoles: %', SQLERRM;
    END;
  END IF;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_picture TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_picture IS
  'The snapshot as the consoles read it: the sections as JSON text (body), the other fields as columns.';

-- fn_queue_snapshot(max age) → the result of fn_queue_picture as one jsonb object.
CREATE OR REPLACE FUNCTION public.fn_queue_snapshot(p_max_age interval DEFAULT interval '1 second') RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN (SELECT p.body::jsonb || jsonb_build_object('taken_at', p.taken_at, 'took_ms', p.took_ms, 'shared', p.shared)
    FROM public.fn_queue_picture(p_max_age) p);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_snapshot TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_snapshot IS
  'Everything the live panes show, computed at most once per p_max_age for all consoles together.';
