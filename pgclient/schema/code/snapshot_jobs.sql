-- Snapshot sections about jobs: queue lanes, job subscriptions, leases, the table job_queue. Sources: DP4 §8, DP1 §10.

COMMENT ON TYPE public.snapshot_lane IS
  'A queue lane in the section queues of the snapshot: counts now and of the last hour, jobs that arrived and ended '
  'per second over five to ten minutes, seconds since the oldest job became due and until the lane is empty at that '
  'pace, and why its jobs wait (empty = nothing blocks them). Internal.';

-- fn_snapshot_lanes(backlog of jobs, rows of v_queue_watch, unfolded counters) → one row per queue lane (job kind
-- and domain) that has live jobs, or in which jobs arrived or ended within the last hour. *_1h: how jobs ended within
-- the last 50 to 60 minutes (buckets of ten). oldest_at: when the oldest waiting job became due, NULL = no waiting job
-- is due. why: the first condition that keeps the jobs of the lane waiting, in the order of the CASE below. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_lanes(p_jobs public.v_job_backlog[], p_watch public.v_queue_watch[],
  p_unfolded public.v_queue_counter_part[])
  RETURNS public.snapshot_lane[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_five bigint := (extract(epoch FROM now())::bigint / 300) * 300;
  -- bucket starts are epochs of ten digits, so they can be compared as text
  v_hour_ago text := (v_five - 3600)::text;
  -- the period over which the rates are measured, in seconds
  v_window numeric := 300 + extract(epoch FROM now())::bigint % 300;
  v_jobs_off boolean := NOT public.fn_cfg_bool('queue.job_substrate.enabled');
  v_due_late boolean := public.fn_job_due_late();
  v_unscheduled boolean := v_due_late AND public.fn_cfg_int('queue.tick.job_queue_default.interval_seconds', 30) = 0;
BEGIN
  RETURN ARRAY(WITH pace AS (
    -- the current bucket and the bucket before: five to ten minutes
    SELECT c.k1, c.k2,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_in_5m' AND c.k3::bigint >= v_five - 300), 0) AS came,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_out_5m' AND c.k3::bigint >= v_five - 300), 0) AS went,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_succeeded_10m'), 0) AS succeeded,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_failed_10m'), 0) AS failed,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_dead_letter_10m'), 0) AS dead,
      COALESCE(sum(c.n) FILTER (WHERE c.scope = 'job_cancelled_10m'), 0) AS cancelled
    FROM (SELECT q.scope, q.k1, q.k2, q.k3, q.n FROM public.queue_counter q
      UNION ALL SELECT d.scope, d.k1, d.k2, d.k3, d.n FROM unnest(p_unfolded) d) c
    WHERE c.scope IN ('job_in_5m', 'job_out_5m', 'job_succeeded_10m', 'job_failed_10m', 'job_dead_letter_10m',
      'job_cancelled_10m')
      AND c.k3 COLLATE "C" > v_hour_ago
    GROUP BY 1, 2
  ), leased AS (
    SELECT l.subscription_id, sum(l.live) AS live FROM public.fn_job_leases() l GROUP BY 1
  ), sorts AS (
    -- Executors with the same job subscriptions, the same handlers and the same absence form one group (sort). A join
    -- of every lane with every executor would multiply their numbers, and a fleet has only a few such groups.
    SELECT row_number() OVER () AS sort, e.absent, e.kinds, array_agg(e.executor_id ORDER BY e.executor_id) AS ids,
      -- more than 100 ids do not fit into the 200 characters of the text
      to_json((array_agg(e.executor_id ORDER BY e.executor_id))[1:100])::text AS who
    FROM (SELECT s.executor_id, CASE WHEN h.state IN ('silent', 'stopped') THEN h.state ELSE '' END AS absent, k.kinds,
        array_agg(ARRAY[s.executor_kind, s.job_kind, s.event_domain] ORDER BY s.job_kind, s.event_domain) AS may
      FROM public.job_subscription s
      JOIN public.queue_heartbeat q ON q.executor_id = s.executor_id AND q.executor_kind = s.executor_kind
      JOIN unnest(p_watch) h ON h.executor_id = s.executor_id AND h.state <> 'deregistered'
      LEFT JOIN public.v_job_handlers k ON k.executor_id = s.executor_id
      WHERE s.enabled GROUP BY s.executor_id, 2, k.kinds) e
    GROUP BY e.absent, e.kinds, e.may
  ), rules AS (
    -- wide: which of job kind and domain the job subscription leaves open; 0 = neither, the most specific
    SELECT x.sort, x.absent, x.kinds, x.who, s.executor_kind,
      (s.job_kind IS NULL)::int * 2 + (s.event_domain IS NULL)::int AS wide,
      COALESCE(s.job_kind, '') AS job_kind, COALESCE(s.event_domain, '') AS event_domain,
      min(s.priority_floor) AS floor, bool_and(s.max_parallel <= COALESCE(l.live, 0)) AS no_room
    FROM sorts x CROSS JOIN unnest(x.ids) AS i (executor_id)
    JOIN public.queue_heartbeat q ON q.executor_id = i.executor_id
    JOIN public.job_subscription s ON s.executor_id = i.executor_id AND s.enabled AND s.executor_kind = q.executor_kind
    LEFT JOIN leased l ON l.subscription_id = s.subscription_id
    GROUP BY x.sort, s.job_kind, s.event_domain, s.executor_kind, x.absent, x.kinds, x.who
  ), lanes AS (
    SELECT row_number() OVER () AS lane, COALESCE(b.job_kind, p.k1) AS job_kind,
      COALESCE(b.event_domain, p.k2) AS event_domain, COALESCE(b.queued, 0) AS queued,
      COALESCE(b.scheduled, 0) AS scheduled, COALESCE(b.leased, 0) AS leased, COALESCE(b.in_progress, 0) AS in_progress,
      COALESCE(b.retry_waiting, 0) AS retry_waiting, b.oldest_at, b.newest_at, b.executor, b.reaches,
      COALESCE(floor(public.fn_age(b.oldest_at))::bigint, 0) AS age_seconds,
      round(COALESCE(p.came, 0) / v_window, 3)::float8 AS in_per_s,
      round(COALESCE(p.went, 0) / v_window, 3)::float8 AS out_per_s,
      COALESCE(p.succeeded, 0)::bigint AS succeeded_1h, COALESCE(p.failed, 0)::bigint AS failed_1h,
      COALESCE(p.dead, 0)::bigint AS dead_1h, COALESCE(p.cancelled, 0)::bigint AS cancelled_1h
    FROM unnest(p_jobs) b FULL JOIN pace p ON p.k1 = b.job_kind AND p.k2 = b.event_domain
  ), admitted AS (
    SELECT x.lane, bool_and(x.absent <> '') AS all_absent,
      CASE WHEN min(x.absent) = max(x.absent) THEN min(x.absent) ELSE 'silent or stopped' END AS absent,
      -- of the executors that live; NULL = none does
      bool_and(x.no_room) FILTER (WHERE x.absent = '') AS no_room,
      bool_and(x.kinds IS NOT NULL AND x.waits <> ALL (x.kinds)) FILTER (WHERE x.absent = '') AS unhandled,
      min(x.floor) FILTER (WHERE x.absent = '') AS floor,
      COALESCE(array_agg(x.who) FILTER (WHERE x.absent = ''), array_agg(x.who)) AS who
    FROM (SELECT DISTINCT ON (l.lane, r.sort) l.lane, l.job_kind AS waits, r.absent, r.kinds, r.floor, r.no_room, r.who
          FROM lanes l
          CROSS JOIN LATERAL (VALUES (0, l.job_kind, l.event_domain), (1, l.job_kind, ''), (2, '', l.event_domain),
            (3, '', '')) AS v (wide, job_kind, event_domain)
          JOIN rules r ON r.wide = v.wide AND r.job_kind = v.job_kind AND r.event_domain = v.event_domain
            AND (l.executor IS NULL OR r.executor_kind = l.executor)
          WHERE l.queued + l.retry_waiting > 0
          ORDER BY l.lane, r.sort, r.wide) x GROUP BY x.lane
  ), never AS (
    -- jobs of an older release, which accepted any process_after; newer releases refuse such times
    SELECT q.job_kind, q.event_domain, count(*) AS n FROM public.job_queue q
    WHERE NOT q.ready AND q.process_after > '9999-12-31Z' GROUP BY 1, 2
  ), told AS (
    SELECT l.*, CASE WHEN l.queued + l.retry_waiting = 0 THEN ''
        WHEN v_jobs_off THEN 'queue.job_substrate.enabled is off'
        WHEN r.lane IS NULL THEN 'no ' || COALESCE(l.executor || ' ', '') || 'executor subscribes to it'
        WHEN r.all_absent THEN format('every subscribed executor is %s: %s', r.absent, w.who)
        WHEN r.unhandled THEN 'no live host has a handler for it'
        WHEN l.oldest_at IS NULL AND v_unscheduled
          THEN 'queue.tick.job_queue_default.interval_seconds is 0'
        WHEN l.oldest_at IS NULL AND v_due_late
          THEN 'job_queue_default does not run: jobs that become due cannot be claimed'
        WHEN l.oldest_at IS NULL AND n.n >= l.queued + l.retry_waiting THEN 'never due'
        WHEN l.oldest_at IS NULL AND n.n > 0 THEN 'due later, ' || n.n || ' never'
        WHEN l.oldest_at IS NULL THEN 'all due later'
        WHEN r.no_room THEN 'parallel limit reached: ' || w.who
        WHEN l.reaches < r.floor THEN 'priority floor ' || r.floor || ' of ' || w.who
        ELSE '' END AS why
    FROM lanes l LEFT JOIN admitted r USING (lane)
    LEFT JOIN never n ON n.job_kind = l.job_kind AND n.event_domain = l.event_domain
    CROSS JOIN LATERAL (
      SELECT left(string_agg(e.executor_id, ', ' ORDER BY e.executor_id), 200) AS who
      FROM unnest(r.who) AS x (ids) CROSS JOIN json_array_elements_text(x.ids::json) AS e (executor_id)
      WHERE r.all_absent OR r.no_room OR l.reaches < r.floor) w
  )
  -- columns in the order of the type snapshot_lane
  SELECT (t.queued, t.scheduled, t.leased, t.in_progress, t.retry_waiting, t.age_seconds, t.in_per_s, t.out_per_s,
    t.succeeded_1h, t.failed_1h, t.dead_1h, t.cancelled_1h, t.oldest_at, t.newest_at,
    CASE WHEN t.why = '' AND t.queued + t.retry_waiting > 0 AND t.out_per_s > t.in_per_s
      THEN ceil((t.queued + t.retry_waiting) / (t.out_per_s - t.in_per_s))::bigint END,
    t.job_kind, t.event_domain, t.executor, t.why)::public.snapshot_lane
  FROM told t);
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_lanes IS
  'Queue lanes with their counts, rates and the reason why they wait, for the snapshot. Internal.';

-- fn_snapshot_queues(lanes) → the section queues: the queue lanes, the one that has waited longest first. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_queues(p_lanes public.snapshot_lane[]) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(l ORDER BY l.oldest_at NULLS LAST, l.queued DESC, l.job_kind, l.event_domain)
    FROM unnest(p_lanes) l), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_queues IS
  'Section of the snapshot: queue lanes, the one that has waited longest first. Internal.';

-- fn_snapshot_job_subscriptions() → the section job_subscriptions: every job subscription, and how many jobs are leased
-- through it (in_flight). Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_job_subscriptions() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT json_agg(x ORDER BY x.executor_id, NULLIF(x.job_kind, '') NULLS FIRST,
    NULLIF(x.event_domain, '') NULLS FIRST) FROM (
    SELECT s.subscription_id, s.executor_id, s.executor_kind, COALESCE(s.job_kind, '') AS job_kind,
      COALESCE(s.event_domain, '') AS event_domain,
      s.priority_floor, s.max_parallel, s.enabled, COALESCE(s.notes, '') AS notes,
      COALESCE(l.live, 0) AS in_flight, s.registered_by, s.registered_at
    FROM public.job_subscription s
    LEFT JOIN (SELECT l.subscription_id, sum(l.live) AS live FROM public.fn_job_leases() l GROUP BY 1) l
      USING (subscription_id)) x), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_job_subscriptions IS
  'Section of the snapshot: job subscriptions, each with the number of its leased jobs. Internal.';

-- fn_snapshot_job_leases() → the section job_leases: up to 50 leases that have expired or have less than a third of
-- their time left, the earliest end first. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_job_leases() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_lease int := public.fn_cfg_int('queue.lease.duration_seconds', 300);
BEGIN
  RETURN COALESCE((SELECT json_agg(x ORDER BY x.lease_until) FROM (
    -- consoles of the previous release read lease_token; here it has the lease id, never the token itself
    SELECT i.lease_id, i.lease_id AS lease_token, l.lease_owner, COALESCE(q.job_kind, '') AS job_kind,
      COALESCE(q.event_domain, '') AS event_domain, l.live,
      l.claimed_at, l.lease_until, l.lease_until < now() AS expired
    FROM (SELECT r.* FROM public.fn_job_leases() r WHERE r.lease_until < now() + make_interval(secs => v_lease / 3.0)
      ORDER BY r.lease_until LIMIT 50) l
    -- as in v_job_lease
    CROSS JOIN LATERAL (SELECT left(encode(sha256(uuid_send(l.lease_token)), 'hex'), 32)::uuid AS lease_id) i
    LEFT JOIN LATERAL (SELECT j.job_kind, j.event_domain FROM public.job_queue j WHERE j.job_id = l.job_ids[1]
      OFFSET 0) q ON true) x), '[]');
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_job_leases IS
  'Section of the snapshot: leases that have expired or will soon expire. Internal.';

-- fn_snapshot_job_table() → the section job_table: live and dead rows of job_queue by PostgreSQL's statistics, its last
-- vacuum, how many leases exist and how many of them have expired, and the session whose open transaction has held back
-- vacuum the longest: its pid, its program and the seconds since its transaction began. Internal.
CREATE OR REPLACE FUNCTION public.fn_snapshot_job_table() RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN (SELECT json_build_object('live_rows', pg_stat_get_live_tuples('public.job_queue'::regclass),
    'dead_rows', pg_stat_get_dead_tuples('public.job_queue'::regclass),
    'last_vacuum', greatest(pg_stat_get_last_vacuum_time('public.job_queue'::regclass),
      pg_stat_get_last_autovacuum_time('public.job_queue'::regclass)),
    'leases', k.n, 'leases_expired', k.expired,
    'oldest_snapshot_seconds', floor(public.fn_age(o.xact_start))::bigint, 'oldest_snapshot_pid', o.pid,
    'oldest_snapshot_program', COALESCE(o.application_name, ''))
  FROM (SELECT count(*) AS n, count(*) FILTER (WHERE l.lease_until < now()) AS expired
    FROM public.fn_job_leases() l) k
  LEFT JOIN LATERAL (SELECT a.pid, a.xact_start, a.application_name FROM pg_stat_activity a
    WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.datname = current_database()
      AND a.xact_start IS NOT NULL
    ORDER BY age(a.backend_xmin) DESC LIMIT 1) o ON true);
END
$fn$;
COMMENT ON FUNCTION public.fn_snapshot_job_table IS
  'Section of the snapshot: rows and vacuum of job_queue, and the session that holds back vacuum. Internal.';
