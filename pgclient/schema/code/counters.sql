-- Delta counters: statement triggers append rows to queue_counter_recent; the tick worker counter_compactor adds these
-- rows to queue_counter (it folds them); readers add up both tables.
--
-- While an old snapshot exists, deltas that are folded stay in the table as dead rows. Therefore a row has the id of
-- its transaction, and a fold notes in queue_counter_watermark which transactions it saw as ended: all their deltas are
-- folded. Readers and the next fold read by index only the deltas of other transactions: those that began later, and
-- those that were in progress. A transaction that stays open delays nothing, and its deltas are found when it commits.
-- The watermark only saves time: reading both tables from the beginning gives the same counts.

COMMENT ON TABLE public.queue_counter IS
  'Folded counts by scope and up to three keys. In a scope whose name ends in m, such as dead_5m, one key is the start '
  'of a time bucket in epoch seconds.';
COMMENT ON COLUMN public.queue_counter.scope IS
  'which counter; the trigger that writes it defines k1 to k3';
GRANT SELECT ON public.queue_counter, public.queue_counter_recent, public.queue_counter_delta,
  public.v_queue_counter_part, public.v_queue_counter TO :"queue_viewer";

COMMENT ON TABLE public.queue_counter_recent IS
  'Counts that are not folded into queue_counter yet, one row per statement and key.';
COMMENT ON COLUMN public.queue_counter_recent.xid IS
  'the transaction that counted; queue_counter_watermark compares it';
COMMENT ON TABLE public.queue_counter_delta IS
  'Counts like those of queue_counter_recent, from statements that could not write there: somebody had locked the '
  'table, or their transaction began before it existed.';
COMMENT ON TABLE public.queue_counter_watermark IS
  'Which deltas are folded; the highest version counts. No row: unfolded deltas are looked for in the whole table.';
COMMENT ON COLUMN public.queue_counter_watermark.at IS 'when the fold ran; after ten minutes the row is no longer used';
COMMENT ON COLUMN public.queue_counter_watermark.below IS
  'the deltas of all transactions with a lower id are folded, except those in late';
COMMENT ON COLUMN public.queue_counter_watermark.late IS
  'transactions with a lower id that had not ended, and the one that folded';
COMMENT ON COLUMN public.queue_counter_watermark.swept_at IS 'when a fold last read the whole table';

-- fn_queue_counter_watermark(below, late) → the watermark from which unfolded deltas are looked for; below is 0 if
-- there is none. A watermark from the future, or with transaction ids that this server has not reached, came with a
-- restored dump or from before the clock was set back. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_counter_watermark(OUT below xid8, OUT late xid8[], OUT version bigint,
  OUT at timestamptz, OUT swept_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
#variable_conflict use_column
BEGIN
  SELECT w.below, w.late, w.version, w.at, w.swept_at INTO below, late, version, at, swept_at
  FROM public.queue_counter_watermark w ORDER BY w.version DESC LIMIT 1;
  IF (at BETWEEN clock_timestamp() - interval '10 minutes' AND clock_timestamp()
    AND below <= pg_snapshot_xmax(pg_current_snapshot())) IS NOT TRUE THEN
    below := '0'::xid8;
    late := '{}'::xid8[];
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_counter_watermark IS
  'From which transaction on unfolded counter deltas are looked for. Internal.';

-- fn_queue_counter_unfolded(scopes) → the deltas of these scopes that are not folded; NULL = all scopes. As views call
-- it, it runs with the rights of its owner.
CREATE OR REPLACE FUNCTION public.fn_queue_counter_unfolded(p_scopes text[])
  RETURNS TABLE (scope text, k1 text, k2 text, k3 text, n bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100 SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
#variable_conflict use_column
DECLARE
  v_from xid8;
  v_late xid8[];
BEGIN
  SELECT w.below, w.late INTO v_from, v_late FROM public.fn_queue_counter_watermark() w;
  RETURN QUERY
  SELECT d.scope, d.k1, d.k2, d.k3, d.n FROM public.queue_counter_recent d
  WHERE d.xid >= v_from AND (p_scopes IS NULL OR d.scope = ANY (p_scopes))
  UNION ALL
  SELECT d.scope, d.k1, d.k2, d.k3, d.n FROM public.queue_counter_recent d
  WHERE d.xid = ANY (v_late) AND (p_scopes IS NULL OR d.scope = ANY (p_scopes))
  UNION ALL
  SELECT d.scope, d.k1, d.k2, d.k3, d.n FROM public.queue_counter_delta d
  WHERE p_scopes IS NULL OR d.scope = ANY (p_scopes);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_counter_unfolded TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator", :"subscription_admin";
COMMENT ON FUNCTION public.fn_queue_counter_unfolded IS
  'Counter deltas that are not folded yet, of some scopes or of all.';

CREATE OR REPLACE VIEW public.v_queue_counter_part AS
  SELECT scope, k1, k2, k3, n FROM public.queue_counter
  UNION ALL SELECT scope, k1, k2, k3, n FROM public.fn_queue_counter_unfolded(NULL::text[]);
COMMENT ON VIEW public.v_queue_counter_part IS
  'Folded counts and deltas, not added up: for queries that sum over keys anyway.';

-- fn_queue_counter_unfolded_sums() → the deltas that are not folded, added up per counter. The snapshot reads them once
-- and passes them to its sections, which add them to what they read from queue_counter. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_counter_unfolded_sums() RETURNS public.v_queue_counter_part[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT ROW(d.scope, d.k1, d.k2, d.k3, sum(d.n))::public.v_queue_counter_part
    FROM public.fn_queue_counter_unfolded(NULL::text[]) d GROUP BY d.scope, d.k1, d.k2, d.k3);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_counter_unfolded_sums IS
  'Counter deltas that are not folded yet, added up per counter. Internal.';

CREATE OR REPLACE VIEW public.v_queue_counter AS
  SELECT scope, k1, k2, k3, sum(n)::bigint AS n FROM public.v_queue_counter_part GROUP BY scope, k1, k2, k3;
COMMENT ON VIEW public.v_queue_counter IS 'Exact counts: folded counts plus the deltas since then.';

-- queue_counter_rank has three rows for each folded counter of open dead letters. The triggers of queue_counter write
-- these rows in the transaction of the fold; only folds write queue_counter.
--   dead_webhook, dead_job, dead_event            the group, with the keys of queue_counter
--   subject_dead_webhook, _job, _event: k1, k2    the sum per row of v_queue_health: its subject and domain
--   open_dead_webhook, _job, _event               the sum of all groups of a source
COMMENT ON TABLE public.queue_counter_rank IS
  'A copy of the folded counters of open dead letters, indexed by size, with sums per row of v_queue_health '
  '(subject_dead_…: k1 = subject, k2 = domain) and per source (open_dead_…). A snapshot reads the largest.';
GRANT SELECT ON public.queue_counter_rank TO :"queue_viewer";

-- v_queue_counter_ranked: the rows that queue_counter_rank must hold, for checks and for recounting. Internal.
CREATE OR REPLACE VIEW public.v_queue_counter_ranked AS
SELECT x.scope, x.k1, x.k2, x.k3, sum(c.n)::bigint AS n
FROM public.queue_counter c
CROSS JOIN LATERAL (VALUES (c.scope, c.k1, c.k2, c.k3),
  ('open_' || c.scope, '', '', ''),
  ('subject_' || c.scope, CASE c.scope WHEN 'dead_job' THEN c.k2 ELSE c.k1 END,
    CASE c.scope WHEN 'dead_webhook' THEN 'webhook' ELSE c.k3 END, '')) AS x (scope, k1, k2, k3)
WHERE c.scope IN ('dead_webhook', 'dead_job', 'dead_event')
GROUP BY x.scope, x.k1, x.k2, x.k3 HAVING sum(c.n) <> 0;
COMMENT ON VIEW public.v_queue_counter_ranked IS
  'The rows that queue_counter_rank must hold, computed from queue_counter. Internal.';
GRANT SELECT ON public.v_queue_counter_ranked TO :"queue_viewer";

CREATE OR REPLACE FUNCTION public.fn_queue_counter_ranked() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_scopes CONSTANT text[] := '{dead_webhook,dead_job,dead_event}'::text[];
  v_scopes text[] := '{}'::text[];
  v_k1 text[];
  v_k2 text[];
  v_k3 text[];
  v_n bigint[];
BEGIN
  -- most statements change no counter of dead letters: v_scopes is then NULL
  IF TG_OP = 'INSERT' THEN
    SELECT array_agg(r.scope), array_agg(r.k1), array_agg(r.k2), array_agg(r.k3), array_agg(r.n)
    INTO v_scopes, v_k1, v_k2, v_k3, v_n FROM new_rows r WHERE r.scope = ANY (c_scopes);
  ELSIF TG_OP = 'DELETE' THEN
    SELECT array_agg(r.scope), array_agg(r.k1), array_agg(r.k2), array_agg(r.k3), array_agg(-r.n)
    INTO v_scopes, v_k1, v_k2, v_k3, v_n FROM old_rows r WHERE r.scope = ANY (c_scopes);
  ELSE
    SELECT array_agg(r.scope), array_agg(r.k1), array_agg(r.k2), array_agg(r.k3), array_agg(r.n)
    INTO v_scopes, v_k1, v_k2, v_k3, v_n FROM (
      SELECT n.scope, n.k1, n.k2, n.k3, n.n FROM new_rows n WHERE n.scope = ANY (c_scopes)
      UNION ALL SELECT o.scope, o.k1, o.k2, o.k3, -o.n FROM old_rows o WHERE o.scope = ANY (c_scopes)) r;
  END IF;
  IF v_scopes IS NULL THEN
    RETURN NULL;
  END IF;
  INSERT INTO public.queue_counter_rank AS q (scope, k1, k2, k3, n)
  SELECT x.scope, x.k1, x.k2, x.k3, sum(c.n)
  FROM ROWS FROM (unnest(v_scopes), unnest(v_k1), unnest(v_k2), unnest(v_k3), unnest(v_n)) AS c (scope, k1, k2, k3, n)
  CROSS JOIN LATERAL (VALUES (c.scope, c.k1, c.k2, c.k3),
    ('open_' || c.scope, '', '', ''),
    ('subject_' || c.scope, CASE c.scope WHEN 'dead_job' THEN c.k2 ELSE c.k1 END,
      CASE c.scope WHEN 'dead_webhook' THEN 'webhook' ELSE c.k3 END, '')) AS x (scope, k1, k2, k3)
  GROUP BY x.scope, x.k1, x.k2, x.k3 HAVING sum(c.n) <> 0 ORDER BY x.scope, x.k1, x.k2, x.k3
  ON CONFLICT (scope, k1, k2, k3) DO UPDATE SET n = q.n + excluded.n;
  RETURN NULL;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_counter_ranked IS
  'Trigger: applies changes of the counters of open dead letters to queue_counter_rank.';

CREATE OR REPLACE TRIGGER trg_queue_counter_inserted AFTER INSERT ON public.queue_counter
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_queue_counter_ranked();
CREATE OR REPLACE TRIGGER trg_queue_counter_updated AFTER UPDATE ON public.queue_counter
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT
    EXECUTE FUNCTION public.fn_queue_counter_ranked();
CREATE OR REPLACE TRIGGER trg_queue_counter_deleted AFTER DELETE ON public.queue_counter
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_queue_counter_ranked();

-- fn_queue_count(counts): writes {{scope, k1, k2, k3, n}, …} as deltas. Triggers on the tables of producers call it, so
-- it never fails and never blocks the producer's statement:
--   1. It checks whether queue_counter_recent can be locked at once and is still as installed. It does so in a
--      subtransaction that writes nothing, which therefore takes no transaction id: from the 65th id of
--      subtransactions on, a transaction makes the snapshots of all other sessions slower.
--   2. If so, it writes the deltas without a subtransaction, and first sets lock_timeout to 0: from here on it can only
--      wait while another session extends the file of the table, and a timeout of that short wait would fail the
--      producer's statement.
--   3. If somebody has added columns, checks, triggers, indexes, rules or row security to the table, it writes in a
--      subtransaction.
--   4. If the deltas could not be written there (VACUUM FULL, REINDEX or CLUSTER holds the table), it writes them to
--      queue_counter_delta, which readers and folds also read.
-- Counts that could not be written to either table are logged in the server's log; qtop doctor finds the difference and
-- qtop recount corrects it. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_count(p_counts text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1ms' AS $fn$
DECLARE
  v_plain boolean;
  v_reason text;
BEGIN
  BEGIN
    LOCK TABLE public.queue_counter_recent IN ROW EXCLUSIVE MODE NOWAIT;
    SELECT c.relnatts = 6 AND c.relchecks = 0
      AND NOT (c.relhastriggers OR c.relhasrules OR c.relrowsecurity)
      AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid
        AND (i.indkey::text <> '6' OR i.indisunique OR i.indpred IS NOT NULL))
      AND NOT EXISTS (SELECT d.scope, d.k1, d.k2, d.k3, d.n FROM public.queue_counter_recent d WHERE false)
    INTO v_plain FROM pg_class c WHERE c.oid = 'public.queue_counter_recent'::regclass;
  EXCEPTION WHEN OTHERS THEN
    v_reason := SQLERRM;
  END;
  IF v_plain THEN
    PERFORM set_config('lock_timeout', '0', true); -- undone when this function returns
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    SELECT p_counts[i][1], p_counts[i][2], p_counts[i][3], p_counts[i][4], p_counts[i][5]::bigint
    FROM generate_subscripts(p_counts, 1) i;
    RETURN;
  ELSIF v_reason IS NULL THEN
    BEGIN
      INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
      SELECT p_counts[i][1], p_counts[i][2], p_counts[i][3], p_counts[i][4], p_counts[i][5]::bigint
      FROM generate_subscripts(p_counts, 1) i;
      RETURN;
    EXCEPTION WHEN OTHERS THEN
      v_reason := SQLERRM;
    END;
  END IF;
  BEGIN
    LOCK TABLE public.queue_counter_delta IN ROW EXCLUSIVE MODE NOWAIT;
    PERFORM set_config('lock_timeout', '0', true) FROM pg_class c
    WHERE c.oid = 'public.queue_counter_delta'::regclass AND NOT (c.relhastriggers OR c.relhasrules OR c.relhasindex);
    INSERT INTO public.queue_counter_delta (scope, k1, k2, k3, n)
    SELECT p_counts[i][1], p_counts[i][2], p_counts[i][3], p_counts[i][4], p_counts[i][5]::bigint
    FROM generate_subscripts(p_counts, 1) i;
  EXCEPTION WHEN OTHERS THEN
    RAISE LOG 'qtop: % was not counted, run qtop recount: %; %', p_counts, v_reason, SQLERRM;
  END;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_count IS
  'Writes counter deltas for triggers on tables that producers write; never raises and never waits. Internal.';

-- fn_queue_counter_compact() → {folded, pruned}: how many deltas were folded and how many buckets were deleted. The
-- tick counter_compactor calls it.
CREATE OR REPLACE FUNCTION public.fn_queue_counter_compact() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_out jsonb := '{"folded": 0, "pruned": 0}'::jsonb || public.fn_queue_step('counter_fold'::text, 10000);
BEGIN
  RETURN CASE WHEN v_out ? 'timed_out' THEN v_out ELSE v_out || public.fn_queue_step('counter_prune'::text, 10000) END;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_counter_compact TO :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_counter_compact IS
  'Tick counter_compactor: folds counter deltas, opens queue lanes that no trigger could open, and drops time buckets '
  'older than two hours.';

-- fn_step_counter_fold and fn_step_counter_fold_targets: the step counter_fold (quarantine.sql). A target is
-- one counter, as a JSON array of scope, k1, k2 and k3. A delta that the step leaves unfolded is not lost:
-- readers add it to the folded counts.
CREATE OR REPLACE FUNCTION public.fn_step_counter_fold(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $fn$
DECLARE
  v_last record;
  v_from xid8;
  v_late xid8[];
  v_seen pg_snapshot;
  v_folded bigint;
  v_domains text[];
  v_kinds text[];
  v_version bigint;
BEGIN
  SELECT * INTO v_last FROM public.fn_queue_counter_watermark();
  v_from := v_last.below;
  v_late := v_last.late;
  IF (v_last.swept_at BETWEEN now() - interval '1 hour' AND now()) IS NOT TRUE THEN
    v_from := '0'::xid8; -- rows were loaded with transaction ids of another server: fold all deltas
    v_late := '{}'::xid8[];
  END IF;
  WITH since AS (
    DELETE FROM public.queue_counter_recent d
    WHERE d.xid >= v_from
      AND (p_only IS NULL OR jsonb_build_array(d.scope, d.k1, d.k2, d.k3)::text = ANY (p_only))
      AND (p_except = '{}' OR jsonb_build_array(d.scope, d.k1, d.k2, d.k3)::text <> ALL (p_except))
    RETURNING d.scope, d.k1, d.k2, d.k3, d.n
  ), late AS (
    DELETE FROM public.queue_counter_recent d
    WHERE d.xid = ANY (v_late)
      AND (p_only IS NULL OR jsonb_build_array(d.scope, d.k1, d.k2, d.k3)::text = ANY (p_only))
      AND (p_except = '{}' OR jsonb_build_array(d.scope, d.k1, d.k2, d.k3)::text <> ALL (p_except))
    RETURNING d.scope, d.k1, d.k2, d.k3, d.n
  ), former AS (
    DELETE FROM public.queue_counter_delta d
    WHERE (p_only IS NULL OR jsonb_build_array(d.scope, d.k1, d.k2, d.k3)::text = ANY (p_only))
      AND (p_except = '{}' OR jsonb_build_array(d.scope, d.k1, d.k2, d.k3)::text <> ALL (p_except))
    RETURNING d.scope, d.k1, d.k2, d.k3, d.n
  ), sums AS (
    SELECT scope, k1, k2, k3, sum(n) AS n, count(*) AS c
    FROM (SELECT * FROM since UNION ALL SELECT * FROM late UNION ALL SELECT * FROM former) gone
    GROUP BY scope, k1, k2, k3
  ), put AS (
    INSERT INTO public.queue_counter AS q (scope, k1, k2, k3, n)
    SELECT scope, k1, k2, k3, n FROM sums WHERE n <> 0 ORDER BY scope, k1, k2, k3
    ON CONFLICT (scope, k1, k2, k3) DO UPDATE SET n = q.n + excluded.n
  )
  SELECT COALESCE(sum(c), 0), array_agg(k2) FILTER (WHERE scope = 'job' AND n > 0),
    array_agg(k1) FILTER (WHERE scope = 'job' AND n > 0), pg_current_snapshot() -- which deltas this statement sees
  INTO v_folded, v_domains, v_kinds, v_seen FROM sums;
  IF p_only IS NULL AND p_except = '{}'
    AND (v_folded > 0 OR v_last.at < clock_timestamp() - interval '5 minutes') THEN
    INSERT INTO public.queue_counter_watermark (at, below, late, swept_at)
    VALUES (clock_timestamp(), pg_snapshot_xmax(v_seen), ARRAY(SELECT x FROM pg_snapshot_xip(v_seen) x
      -- a snapshot does not list the transaction that took it, and this transaction may
      -- write further deltas
      UNION SELECT pg_current_xact_id() WHERE pg_current_xact_id() < pg_snapshot_xmax(v_seen)),
      CASE WHEN v_from = '0'::xid8 THEN now() ELSE v_last.swept_at END)
    RETURNING version INTO v_version;
    -- look up near the last version, not from the head of the index, which is full of
    -- entries of dead rows
    DELETE FROM public.queue_counter_watermark w
    WHERE w.version BETWEEN COALESCE(v_last.version - 10, 0) AND v_version - 1;
  END IF;
  -- the queue lanes that the trigger on job_queue could not open
  INSERT INTO public.job_lane (event_domain, job_kind)
  SELECT DISTINCT l.event_domain, l.job_kind
  FROM ROWS FROM (unnest(v_domains), unnest(v_kinds)) AS l (event_domain, job_kind)
  WHERE l.event_domain ~ '^[a-z][a-z0-9_]{0,50}$' AND l.job_kind ~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$'
    AND NOT EXISTS (SELECT FROM public.job_lane o WHERE o.event_domain = l.event_domain AND o.job_kind = l.job_kind);
  RETURN jsonb_build_object('folded', v_folded);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_counter_fold IS
  'Step counter_fold (see fn_queue_step): folds counter deltas, and opens queue lanes that no trigger could '
  'open. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_counter_fold_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT x.key FROM (SELECT DISTINCT jsonb_build_array(d.scope, d.k1, d.k2, d.k3)::text AS key
    FROM public.fn_queue_counter_unfolded(NULL::text[]) d) x
    WHERE x.key <> ALL (p_except) ORDER BY x.key LIMIT p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_counter_fold_targets IS
  'Targets of the step counter_fold: counters with deltas. Internal.';

-- fn_queue_counter_buckets() → the scopes of time buckets that have rows. It reads one index entry per scope, because
-- scopes without time buckets may have a hundred thousand rows. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_counter_buckets() RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
BEGIN
  RETURN ARRAY(WITH RECURSIVE r AS (
    (SELECT c.scope FROM public.queue_counter c ORDER BY c.scope LIMIT 1)
    UNION ALL
    SELECT (SELECT c.scope FROM public.queue_counter c WHERE c.scope > r.scope ORDER BY c.scope LIMIT 1)
    FROM r WHERE r.scope IS NOT NULL)
  SELECT r.scope FROM r WHERE r.scope ~ '_[0-9]+m$');
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_counter_buckets IS 'Scopes of time buckets that have rows. Internal.';

-- fn_step_counter_prune and fn_step_counter_prune_targets: the step counter_prune (quarantine.sql). Buckets more than
-- five minutes ahead were counted before the clock was set back: readers would add them to the counts of today, and of
-- that time once it comes again.
CREATE OR REPLACE FUNCTION public.fn_step_counter_prune(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
  c_zero CONSTANT text[] := '{dead_webhook,dead_job,dead_event,subject_dead_webhook,subject_dead_job,
    subject_dead_event}'::text[];
  v_scopes text[] := public.fn_queue_counter_buckets();
  v_now bigint := extract(epoch FROM now());
  v_pruned bigint;
BEGIN
  DELETE FROM public.queue_counter c
  WHERE c.scope = ANY (v_scopes) AND CASE WHEN c.k3 ~ '^[0-9]{1,15}$' THEN c.k3::bigint END
      NOT BETWEEN v_now - 7200 AND v_now + 300
    AND (p_only IS NULL OR jsonb_build_array(c.scope, c.k1, c.k2, c.k3)::text = ANY (p_only))
    AND (p_except = '{}' OR jsonb_build_array(c.scope, c.k1, c.k2, c.k3)::text <> ALL (p_except));
  GET DIAGNOSTICS v_pruned = ROW_COUNT;
  IF p_only IS NULL THEN -- delete groups without an open dead letter, unless a concurrent fold adds one
    WITH z AS MATERIALIZED (
      SELECT r.scope, r.k1, r.k2, r.k3 FROM public.queue_counter_rank r
      WHERE r.scope = ANY (c_zero) AND r.n = 0 LIMIT p_limit
    ), gone AS (
      DELETE FROM public.queue_counter c USING z
      WHERE c.scope = z.scope AND c.k1 = z.k1 AND c.k2 = z.k2 AND c.k3 = z.k3 AND c.n = 0
    )
    DELETE FROM public.queue_counter_rank r USING z
    WHERE r.scope = z.scope AND r.k1 = z.k1 AND r.k2 = z.k2 AND r.k3 = z.k3 AND r.n = 0;
  END IF;
  RETURN jsonb_build_object('pruned', v_pruned);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_counter_prune IS
  'Step counter_prune (see fn_queue_step): deletes time buckets older than two hours or ahead of the clock, and groups '
  'that have no open dead letter. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_counter_prune_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_scopes text[] := public.fn_queue_counter_buckets();
  v_now bigint := extract(epoch FROM now());
BEGIN
  RETURN ARRAY(SELECT x.key FROM (
      SELECT jsonb_build_array(c.scope, c.k1, c.k2, c.k3)::text AS key FROM public.queue_counter c
      WHERE c.scope = ANY (v_scopes) AND CASE WHEN c.k3 ~ '^[0-9]{1,15}$' THEN c.k3::bigint END
        NOT BETWEEN v_now - 7200 AND v_now + 300) x
    WHERE x.key <> ALL (p_except) ORDER BY x.key LIMIT p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_counter_prune_targets IS
  'Targets of the step counter_prune: time buckets older than two hours or ahead of the clock. Internal.';
