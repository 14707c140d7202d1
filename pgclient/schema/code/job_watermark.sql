-- Watermarks: the time at which look-ups in the job queue begin while an old snapshot keeps dead rows.
--
-- PostgreSQL keeps each finished job in the table and its indexes while a snapshot exists that may still see it. A
-- look-up from the head of an index then reads all of them. The watermark of a queue lane is a time: no claimable job
-- of the lane has an earlier process_after, so that look-ups may begin there.
--
-- 1. fn_job_watermark_advance, which hosts call once a second, finds an old snapshot and writes a row of
--    job_watermark_state without watermarks. The next call, after that row was committed, notes the time (seen_at) and
--    the transactions that are in progress (seen).
-- 2. When all of these transactions have ended, it looks up the first claimable job of each lane, beginning at the last
--    watermark. The new watermark is that job's process_after, or seen_at - 1 s if that is earlier. This look-up sees
--    the jobs of the ended transactions; the jobs of all other transactions are written after seen_at.
-- 3. A trigger on job_queue writes to job_watermark_below each job that is, or becomes again, claimable with a
--    process_after over 0.5 s ago: retries, returned jobs, jobs of a transaction that began long ago. The look-up of
--    step 2 begins at these, and readers take the lower of both. A job and its row become visible together. While no
--    watermarks are valid, fn_job_tick deletes the rows: the first watermarks are found from the head. It takes the
--    lease job_watermark first, and deletes nothing if a call of fn_job_watermark_advance holds it: that call may have
--    begun to find watermarks.
-- 4. Step 2 waits at most 10 s for a transaction of step 1; after that the transaction is noted in late. When it has
--    ended, no watermark is valid until all watermarks were found again from the head.
-- 5. Watermarks are not valid if nobody has renewed them for 10 s, or if they were written in the future (the clock was
--    set back): look-ups then begin at the head. Once a minute each watermark is found again from the head, for rows
--    that were written without triggers. That can take minutes, in which nobody renews the watermarks. Therefore a
--    call announces it in the lease job_watermark, and the next call does it: the watermarks that were valid stay so
--    until it ends, for 5 minutes at most.
-- 6. Leases have a separate watermark, because each ended claim leaves a dead row in job_lease. A lease has the id
--    of its transaction. Each call notes, in the snapshot in which it reads the live leases, that no transaction below
--    lease_below has a live lease, except those in lease_late: the transactions of the live leases, and those that had
--    not ended. As no lease is written a second time with the same id, this stays true. Readers look up by index the
--    leases of all other transactions; the next call does the same, so that a lease that lives long delays nothing.
--    A claim only needs the number of leased jobs of its job subscription, for max_parallel. Each call therefore notes
--    this number in job_lease_count. As a lease never gets more jobs, the number and the jobs of the leases since then
--    are at least as many as are leased now. Only if that leaves too few free slots, the claim reads the leases of its
--    job subscription.
-- 7. The jobs that are due later and not claimable yet have one watermark, unready_due. Steps 1 to 5 hold for it too;
--    in job_watermark_below these jobs have no domain and no kind. It passes jobs in quarantine, which nobody makes
--    claimable: their retries look them up by id.
--
-- Rows are inserted, and read in descending order of version: a row that is updated every second would be read through
-- all its earlier versions.

COMMENT ON TABLE public.job_watermark_state IS
  'Whether the watermarks in job_watermark are valid; the highest version counts. No row: look-ups begin at the head.';
COMMENT ON COLUMN public.job_watermark_state.at IS 'when a call of fn_job_watermark_advance last ended';
COMMENT ON COLUMN public.job_watermark_state.seen_at IS
  'a time before seen; the next watermarks are at least 1 s before it';
COMMENT ON COLUMN public.job_watermark_state.seen IS
  'the transactions in progress here must end before the next watermarks are found';
COMMENT ON COLUMN public.job_watermark_state.late IS
  'transactions that were not waited for; the watermarks are not valid when one of them has ended';
COMMENT ON COLUMN public.job_watermark_state.valid IS 'false = the first watermarks are not found yet';
COMMENT ON COLUMN public.job_watermark_state.swept_at IS 'when all watermarks were last found from the head';
COMMENT ON COLUMN public.job_watermark_state.lease_below IS
  'no transaction with a lower id has a live lease, except those in lease_late; independent of valid';
COMMENT ON COLUMN public.job_watermark_state.lease_late IS
  'up to 1,000 transactions below lease_below that may have a live lease';
COMMENT ON COLUMN public.job_watermark_state.lease_seen IS
  'the live leases of transactions with a lower id, except those in lease_open, are counted in job_lease_count';
COMMENT ON COLUMN public.job_watermark_state.lease_open IS
  'the transactions below lease_seen that had not ended, and the one that counted';
COMMENT ON TABLE public.job_lease_count IS
  'How many jobs were leased under a job subscription when its leases were last read, at most a few seconds ago. '
  'Rows of other versions than that of job_watermark_state do not count.';
COMMENT ON COLUMN public.job_lease_count.version IS 'the version of job_watermark_state';
COMMENT ON COLUMN public.job_lease_count.live IS 'how many jobs were leased';
COMMENT ON COLUMN public.job_lease_count.xids IS 'the transactions that claimed them; NULL = more than 1,000';
COMMENT ON COLUMN public.job_watermark_state.unready_due IS
  'no job that is not claimable yet is due before, beside those in job_watermark_below and in quarantine';
COMMENT ON COLUMN public.job_lease.xid IS 'the transaction that claimed; job_watermark_state.lease_below compares it';
COMMENT ON TABLE public.job_watermark IS
  'Per queue lane: no claimable job has a process_after before due, beside those in job_watermark_below. The highest '
  'version counts.';
COMMENT ON COLUMN public.job_watermark.version IS 'the version of job_watermark_state with which it was found';
COMMENT ON COLUMN public.job_watermark.priority IS
  'a priority of many jobs of the lane: look-ups begin at due there, and pass the index entries of other priorities';
COMMENT ON TABLE public.job_watermark_below IS
  'Jobs that became claimable with a process_after over 0.5 s ago; the next watermarks are found from there. Without '
  'domain and kind: jobs that are not claimable yet.';

-- fn_job_watermark_fresh(at) → whether watermarks that were renewed at this time count still: for 10 s, or while they
-- are found again from the head (step 5). Internal.
CREATE OR REPLACE FUNCTION public.fn_job_watermark_fresh(p_at timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF p_at IS NULL THEN -- the usual case: there are no watermarks
    RETURN false;
  ELSIF p_at BETWEEN clock_timestamp() - interval '10 seconds' AND clock_timestamp() THEN
    RETURN true;
  END IF;
  RETURN EXISTS (SELECT FROM public.dot_iu_runtime_lease l WHERE l.lease_name = 'job_watermark'
    AND clock_timestamp() BETWEEN l.acquired_at AND l.expires_at AND p_at BETWEEN l.acquired_at AND clock_timestamp());
END
$fn$;
COMMENT ON FUNCTION public.fn_job_watermark_fresh IS
  'Whether watermarks that were renewed at a time count still. Internal.';

-- fn_job_watermark_valid() → whether look-ups may begin at the watermarks in job_watermark. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_watermark_valid() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
DECLARE
  s record;
BEGIN
  SELECT x.valid, x.at, x.late INTO s FROM public.job_watermark_state x ORDER BY x.version DESC LIMIT 1;
  RETURN COALESCE(s.valid AND public.fn_job_watermark_fresh(s.at)
    AND NOT EXISTS (SELECT FROM unnest(s.late) t WHERE pg_visible_in_snapshot(t, pg_current_snapshot())), false);
END
$fn$;
COMMENT ON FUNCTION public.fn_job_watermark_valid IS
  'Whether look-ups in the job queue may begin at the watermarks. Internal.';

-- fn_job_lease_watermark(below, late) → the watermark of the leases; below is 0 if there is none. A watermark with
-- transaction ids that this server has not reached came with a restored dump. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_lease_watermark(OUT below xid8, OUT late xid8[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
DECLARE
  v_at timestamptz;
BEGIN
  SELECT x.at, x.lease_below, x.lease_late INTO v_at, below, late
  FROM public.job_watermark_state x ORDER BY x.version DESC LIMIT 1;
  IF (public.fn_job_watermark_fresh(v_at) AND below <= pg_snapshot_xmax(pg_current_snapshot())) IS NOT TRUE THEN
    below := '0'::xid8;
    late := '{}'::xid8[];
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_job_lease_watermark IS
  'From which transaction on live leases are looked for. Internal.';

-- fn_job_leases_since(below, late) → the live leases of transactions from below on, and of those in late. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_leases_since(p_below xid8, p_late xid8[]) RETURNS SETOF public.job_lease
LANGUAGE plpgsql STABLE ROWS 100 SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
BEGIN
  RETURN QUERY SELECT l.* FROM public.job_lease l WHERE l.xid >= p_below
    UNION ALL SELECT l.* FROM public.job_lease l WHERE l.xid = ANY (p_late) AND l.xid < p_below;
END
$fn$;
COMMENT ON FUNCTION public.fn_job_leases_since IS
  'Live leases of transactions from an id on, and of some others. Internal.';

-- fn_job_leases() → all rows of job_lease, read from the watermark if there is one. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_leases() RETURNS SETOF public.job_lease
LANGUAGE plpgsql STABLE ROWS 100 SET search_path = pg_catalog, pg_temp
SET enable_seqscan = on SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
DECLARE
  v_below xid8;
  v_late xid8[];
BEGIN
  SELECT w.below, w.late INTO v_below, v_late FROM public.fn_job_lease_watermark() w;
  IF v_below = '0'::xid8 THEN
    RETURN QUERY SELECT l.* FROM public.job_lease l;
  ELSE
    RETURN QUERY SELECT l.* FROM public.fn_job_leases_since(v_below, v_late) l;
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_job_leases IS
  'All live leases, read from their watermark if there is one. Internal.';

-- fn_job_leased(subscription, enough) → how many jobs are leased under the job subscription. If that is at most
-- p_enough, any number from it to p_enough may be returned, which is found without reading the leases one by one.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_job_leased(p_subscription_id uuid, p_enough bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
DECLARE
  s record;
  c record;
  v_since bigint;
BEGIN
  SELECT x.version, x.at, x.lease_seen, x.lease_open INTO s
  FROM public.job_watermark_state x ORDER BY x.version DESC LIMIT 1;
  IF (public.fn_job_watermark_fresh(s.at) AND s.lease_seen <= pg_snapshot_xmax(pg_current_snapshot())) IS NOT TRUE THEN
    RETURN COALESCE((SELECT sum(l.live) FROM public.job_lease l WHERE l.subscription_id = p_subscription_id), 0);
  END IF;
  v_since := COALESCE((SELECT sum(l.live) FROM public.fn_job_leases_since(s.lease_seen, s.lease_open) l
    WHERE l.subscription_id = p_subscription_id), 0);
  SELECT x.live, x.xids INTO c FROM public.job_lease_count x
  WHERE x.version = s.version AND x.subscription_id = p_subscription_id;
  IF c.live IS NULL OR v_since + c.live <= p_enough THEN
    RETURN v_since + COALESCE(c.live, 0);
  ELSIF c.xids IS NULL THEN
    RETURN COALESCE((SELECT sum(l.live) FROM public.fn_job_leases() l WHERE l.subscription_id = p_subscription_id), 0);
  END IF;
  -- by xid alone, for OFFSET 0: the index of subscriptions also has the leases that ended
  RETURN v_since + COALESCE((SELECT sum(l.live) FROM (SELECT x.live, x.subscription_id FROM public.job_lease x
    WHERE x.xid = ANY (c.xids) OFFSET 0) l WHERE l.subscription_id = p_subscription_id), 0);
END
$fn$;
COMMENT ON FUNCTION public.fn_job_leased IS
  'How many jobs are leased under a job subscription, or at most p_enough. Internal.';

-- fn_job_unready_from() → the time at which look-ups of jobs that are not claimable yet begin; -infinity without a
-- watermark. Call it in the statement of the look-up, so that both are of one snapshot. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_unready_from() RETURNS timestamptz
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
BEGIN
  RETURN COALESCE((SELECT least(x.unready_due, (SELECT min(b.due) FROM public.job_watermark_below b
      WHERE b.event_domain = '' AND b.job_kind = ''))
    FROM public.job_watermark_state x WHERE x.unready_due IS NOT NULL AND public.fn_job_watermark_valid()
    ORDER BY x.version DESC LIMIT 1), '-infinity');
END
$fn$;
COMMENT ON FUNCTION public.fn_job_unready_from IS
  'From when on jobs are looked for that are not claimable yet. Internal.';

-- fn_job_unready_first(from) → when the first job becomes due that is not claimable yet and is due at p_from or later,
-- without jobs in quarantine; NULL = there is none. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_unready_first(p_from timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
BEGIN
  RETURN (SELECT q.process_after FROM public.job_queue q WHERE NOT q.ready AND q.process_after >= p_from
    AND NOT EXISTS (SELECT FROM public.queue_quarantine x WHERE x.step = 'job_promote' AND x.target = q.job_id::text)
    ORDER BY q.process_after, q.job_id LIMIT 1);
END
$fn$;
COMMENT ON FUNCTION public.fn_job_unready_first IS
  'When the first job becomes due that is not claimable yet, from a time on. Internal.';

-- fn_job_watermark_wanted() → whether a session, a prepared transaction or a replication slot has kept dead rows for
-- more than 2,000 transactions. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_watermark_wanted() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN EXISTS (SELECT FROM pg_stat_activity a WHERE (a.datname = current_database() OR a.datname IS NULL)
      AND greatest(age(a.backend_xmin), age(a.backend_xid)) > 2000)
    OR EXISTS (SELECT FROM pg_prepared_xacts p WHERE age(p.transaction) > 2000)
    OR EXISTS (SELECT FROM pg_replication_slots r WHERE age(r.xmin) > 2000);
END
$fn$;
COMMENT ON FUNCTION public.fn_job_watermark_wanted IS 'Whether an old snapshot keeps dead rows. Internal.';

-- fn_job_watermark_below(domain, kind, due): notes that a job of the lane became claimable late, for the trigger of
-- job_queue; domain and kind '' = a job that is not claimable yet. If the row cannot be written at once, step 5 finds
-- the job within a minute. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_watermark_below(p_domain text, p_kind text, p_due timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1ms' AS $fn$
BEGIN
  BEGIN -- a subtransaction that writes nothing, as in fn_queue_count
    LOCK TABLE public.job_watermark_below IN ROW EXCLUSIVE MODE NOWAIT;
  EXCEPTION WHEN OTHERS THEN
    RAISE LOG 'qtop: % that has been due since % may be claimed a minute late: %', CASE WHEN p_domain = ''
      THEN 'a delayed job' ELSE format('a job of queue lane %s/%s', p_domain, p_kind) END, p_due, SQLERRM;
    RETURN;
  END;
  PERFORM set_config('lock_timeout', '0', true); -- another session may extend the table, as in fn_queue_count
  INSERT INTO public.job_watermark_below (event_domain, job_kind, due) VALUES (p_domain, p_kind, p_due);
END
$fn$;
COMMENT ON FUNCTION public.fn_job_watermark_below IS
  'Notes a job that became claimable below the watermark of its queue lane. Internal.';

-- fn_job_watermark_advance() → whether the watermarks are valid. Each host with a job loop calls it once a second; only
-- one call per second does anything. Step numbers in it are those at the top of job_watermark.sql.
CREATE OR REPLACE FUNCTION public.fn_job_watermark_advance() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
DECLARE
  v_at timestamptz;
  v_now pg_snapshot;
  s public.job_watermark_state;
  n public.job_watermark_state;
  v_open xid8[];
  v_below public.job_watermark_below[];
  v_announced boolean;
  v_sweep boolean;
  v_lease_from xid8;
  v_lease_late xid8[];
  v_lease_seen pg_snapshot;
  v_lease_xids xid8[]; -- per live lease
  v_lease_of uuid[];
  v_lease_live int[];
  v_lane record;
  v_from timestamptz;
  v_due timestamptz;
  v_priority int;
BEGIN
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION 'fn_job_watermark_advance needs a transaction with isolation level READ COMMITTED'
      USING ERRCODE = '25001';
  END IF;
  IF NOT public.fn_job_watermark_wanted() AND NOT EXISTS (SELECT FROM public.job_watermark_state)
    AND NOT EXISTS (SELECT FROM public.job_watermark_below) THEN
    RETURN false; -- the usual case: nothing is written
  END IF;
  SELECT clock_timestamp() BETWEEN l.acquired_at AND l.expires_at INTO v_announced
  FROM public.dot_iu_runtime_lease l WHERE l.lease_name = 'job_watermark' FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    PERFORM public.fn_queue_lease_check('job_watermark'::text);
    RETURN public.fn_job_watermark_valid();
  END IF;
  SELECT * INTO s FROM public.job_watermark_state x ORDER BY x.version DESC LIMIT 1;
  v_at := clock_timestamp(); -- read before v_now, so that seen_at is not after seen
  IF s.at BETWEEN v_at - interval '900 milliseconds' AND v_at THEN
    RETURN public.fn_job_watermark_valid();
  END IF;
  v_now := pg_current_snapshot();
  n.version := nextval(pg_get_serial_sequence('public.job_watermark_state', 'version'));
  n.late := '{}';
  n.valid := false;
  SELECT w.below, w.late INTO v_lease_from, v_lease_late FROM public.fn_job_lease_watermark() w; -- those in s
  IF NOT public.fn_job_watermark_wanted() THEN
    DELETE FROM public.job_watermark_state;
    DELETE FROM public.job_watermark;
    DELETE FROM public.job_watermark_below;
    DELETE FROM public.job_lease_count;
    UPDATE public.dot_iu_runtime_lease SET expires_at = v_at WHERE lease_name = 'job_watermark' AND expires_at > v_at;
    RETURN false;
  ELSIF s.version IS NULL OR NOT public.fn_job_watermark_fresh(s.at)
    OR EXISTS (SELECT FROM unnest(s.late) t WHERE pg_visible_in_snapshot(t, v_now)) THEN -- step 1, 4 or 5
    DELETE FROM public.job_watermark_state;
    DELETE FROM public.job_watermark;
    DELETE FROM public.job_lease_count;
    UPDATE public.dot_iu_runtime_lease SET expires_at = v_at WHERE lease_name = 'job_watermark' AND expires_at > v_at;
  ELSIF s.seen IS NULL THEN
    n.seen_at := v_at;
    n.seen := v_now;
  ELSE
    v_open := ARRAY(SELECT x FROM pg_snapshot_xip(s.seen) x WHERE NOT pg_visible_in_snapshot(x, v_now));
    n.seen_at := s.seen_at;
    n.seen := s.seen;
    n.late := s.late;
    n.valid := s.valid;
    n.swept_at := s.swept_at;
    n.unready_due := s.unready_due;
    IF v_open <@ s.late OR v_at > s.seen_at + interval '10 seconds' THEN -- step 2
      v_sweep := NOT s.valid OR COALESCE(s.swept_at NOT BETWEEN v_at - interval '1 minute' AND v_at, true);
      IF v_sweep AND s.valid AND v_announced IS NOT TRUE THEN -- step 5: the next call sweeps
        UPDATE public.dot_iu_runtime_lease SET lease_holder = session_user || ' pid ' || pg_backend_pid(),
          acquired_at = v_at, expires_at = v_at + interval '5 minutes' WHERE lease_name = 'job_watermark';
        v_sweep := NULL;
      ELSE
        n.seen_at := v_at;
        n.seen := v_now;
        n.late := v_open;
        n.valid := true;
      END IF;
    END IF;
  END IF;
  IF v_sweep THEN
    v_lease_from := '0'::xid8;
  END IF;
  SELECT pg_current_snapshot(), array_agg(l.xid), array_agg(l.subscription_id), array_agg(l.live::int)
  INTO v_lease_seen, v_lease_xids, v_lease_of, v_lease_live -- one statement, so that all are of one snapshot
  FROM public.fn_job_leases_since(v_lease_from, v_lease_late) l;
  n.lease_seen := pg_snapshot_xmax(v_lease_seen);
  n.lease_open := ARRAY(SELECT pg_snapshot_xip(v_lease_seen)
    -- no snapshot lists its own transaction, which may claim after this call
    UNION SELECT pg_current_xact_id() WHERE pg_current_xact_id() < n.lease_seen);
  v_lease_late := ARRAY(SELECT x.xid FROM (SELECT unnest(v_lease_xids) UNION SELECT unnest(n.lease_open)) AS x (xid)
    WHERE x.xid < n.lease_seen ORDER BY x.xid LIMIT 1001);
  IF v_sweep IS NOT NULL THEN
    WITH gone AS (DELETE FROM public.job_watermark_below RETURNING event_domain, job_kind, due)
    SELECT array_agg(ROW(g.event_domain, g.job_kind, g.due)::public.job_watermark_below) INTO v_below FROM (
      SELECT event_domain, job_kind, min(due) AS due FROM gone GROUP BY 1, 2) g;
    v_from := CASE WHEN v_sweep OR s.unready_due IS NULL THEN '-infinity' ELSE
      least(s.unready_due, (SELECT b.due FROM unnest(v_below) b WHERE b.event_domain = '' AND b.job_kind = '')) END;
    n.unready_due := least(s.seen_at - interval '1 second', public.fn_job_unready_first(v_from));
  END IF;
  FOR v_lane IN
    SELECT l.event_domain, l.job_kind, f.version, f.due, f.priority, b.due AS below
    FROM (SELECT DISTINCT o.event_domain, o.job_kind FROM public.job_lane o) l
    LEFT JOIN unnest(v_below) b ON b.event_domain = l.event_domain AND b.job_kind = l.job_kind
    LEFT JOIN LATERAL (SELECT x.version, x.due, x.priority FROM public.job_watermark x
      WHERE x.event_domain = l.event_domain AND x.job_kind = l.job_kind ORDER BY x.version DESC LIMIT 1) f ON true
    WHERE v_sweep IS NOT NULL
  LOOP
    v_from := CASE WHEN v_sweep OR v_lane.due IS NULL THEN '-infinity' ELSE least(v_lane.due, v_lane.below) END;
    v_due := least(s.seen_at - interval '1 second', (SELECT q.process_after FROM public.job_queue q
      WHERE q.event_domain = v_lane.event_domain AND q.job_kind = v_lane.job_kind AND q.ready
        AND q.process_after >= v_from AND q.status IN ('queued', 'retry_waiting')
      ORDER BY q.process_after LIMIT 1));
    v_priority := (SELECT q.priority FROM public.job_queue q
      WHERE q.event_domain = v_lane.event_domain AND q.job_kind = v_lane.job_kind AND q.ready
        AND q.process_after >= greatest(v_due, s.seen_at - interval '1 second')
      ORDER BY q.process_after DESC LIMIT 1);
    -- the watermark of a lane without new jobs rises only twice a minute, to save writes
    IF v_lane.version IS NULL OR v_due < v_lane.due
      OR v_due > v_lane.due + (CASE WHEN v_priority IS NULL THEN interval '30 seconds' ELSE interval '1 second' END)
    THEN
      INSERT INTO public.job_watermark (event_domain, job_kind, version, due, priority)
      VALUES (v_lane.event_domain, v_lane.job_kind, n.version, v_due, COALESCE(v_priority, v_lane.priority, 100));
      DELETE FROM public.job_watermark
      WHERE event_domain = v_lane.event_domain AND job_kind = v_lane.job_kind AND version = v_lane.version;
    END IF;
  END LOOP;
  UPDATE public.dot_iu_runtime_lease SET expires_at = clock_timestamp()
  WHERE v_sweep AND lease_name = 'job_watermark' AND expires_at > clock_timestamp();
  -- Not before: the call may have read the index entries of millions of finished jobs, and the watermarks are as old
  -- as this row says.
  n.at := clock_timestamp();
  INSERT INTO public.job_watermark_state (version, at, seen_at, seen, late, valid, swept_at, lease_below, lease_late,
    lease_seen, lease_open, unready_due)
  OVERRIDING SYSTEM VALUE
  VALUES (n.version, n.at, n.seen_at, n.seen, n.late, n.valid, CASE WHEN v_sweep THEN n.at ELSE n.swept_at END,
    COALESCE(v_lease_late[1001], n.lease_seen), v_lease_late[1:1000], n.lease_seen, n.lease_open, n.unready_due);
  INSERT INTO public.job_lease_count (version, subscription_id, live, xids)
  SELECT n.version, l.subscription_id, sum(l.live), CASE WHEN count(DISTINCT l.xid) <= 1000
    THEN array_agg(DISTINCT l.xid) END
  FROM ROWS FROM (unnest(v_lease_xids), unnest(v_lease_of), unnest(v_lease_live)) AS l (xid, subscription_id, live)
  WHERE l.xid < n.lease_seen AND l.xid <> ALL (n.lease_open) GROUP BY l.subscription_id;
  DELETE FROM public.job_watermark_state WHERE version = s.version;
  DELETE FROM public.job_lease_count WHERE version = s.version;
  RETURN n.valid;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_job_watermark_advance TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_watermark_advance IS
  'Moves the watermarks, at which claims begin to look for jobs, while an old snapshot keeps dead rows.';
