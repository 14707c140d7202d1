-- Partitions by time, and the retention sweep, which drops partitions older than their retention.

COMMENT ON TABLE public.queue_partitioned IS
  'Tables partitioned by time: by which column, in which periods (UTC), and how far ahead partitions are created.';
GRANT SELECT ON public.queue_partitioned TO :"queue_viewer", :"dot_executor", :"workflow_admin";

-- A default partition stores rows for which no leaf (partition of a period) exists; the migrations create it. A
-- TRUNCATE of a leaf does not fire the trigger of its parent, so each leaf needs a guard, as the default partitions
-- have here.
COMMENT ON TABLE public.event_outbox_default IS
  'Rows of event_outbox in a month without a partition; should be empty.';

COMMENT ON TABLE public.job_history_default IS
  'Rows of job_history in a day without a partition; should be empty.';

COMMENT ON TABLE public.queue_metric_sample_default IS
  'Rows of queue_metric_sample in a day without a partition; should be empty.';

CREATE OR REPLACE TRIGGER trg_event_outbox_default_no_truncate
  BEFORE TRUNCATE ON public.event_outbox_default FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();
CREATE OR REPLACE TRIGGER trg_job_history_default_no_truncate
  BEFORE TRUNCATE ON public.job_history_default FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();
CREATE OR REPLACE TRIGGER trg_queue_metric_sample_default_no_truncate BEFORE TRUNCATE
  ON public.queue_metric_sample_default FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();

-- fn_queue_leaf_fault(parent, name, from, to) → {why, remedy}: why the leaf of that name for that period cannot be
-- created, NULL if nothing is in its way or it exists. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_leaf_fault(p_parent text, p_name text, p_from timestamptz, p_to timestamptz)
  RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO, MDY' AS $fn$ -- the bounds are read and written as text
DECLARE
  v_full text := format('public.%I', p_name);
  v_bounds text := format('FOR VALUES FROM (%L) TO (%L)', p_from, p_to);
  v_taken boolean := to_regclass(v_full) IS NOT NULL OR to_regtype(v_full) IS NOT NULL;
  v_leaf regclass;
  v_has text;
BEGIN
  SELECT l.leaf, l.has INTO v_leaf, v_has FROM (
    SELECT i.inhrelid::regclass AS leaf, pg_get_expr(c.relpartbound, 0) AS has FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(format('public.%I', p_parent))) l
  CROSS JOIN LATERAL regexp_match(l.has, '^FOR VALUES FROM [(]''?([^'']+?)''?[)] TO [(]''?([^'']+?)''?[)]$') b (bound)
  WHERE replace(b.bound[1], 'MINVALUE', '-infinity')::timestamptz < p_to
    AND replace(b.bound[2], 'MAXVALUE', 'infinity')::timestamptz > p_from
  ORDER BY l.leaf::oid = to_regclass(v_full) DESC NULLS LAST, l.leaf::text COLLATE "C" LIMIT 1;
  IF v_leaf IS NULL AND NOT v_taken OR v_leaf = to_regclass(v_full) AND v_has = v_bounds THEN
    RETURN NULL;
  END IF;
  RETURN jsonb_build_object('why', format('partition %s of %s cannot be made: %s', p_name, p_parent, CASE
      WHEN v_leaf IS NULL THEN 'another object has its name'
      ELSE format('partition %s overlaps it (%s)', v_leaf, v_has) END),
    'remedy', CASE
      WHEN v_leaf IS NULL THEN format('rename it; if it is the partition, detached by hand: '
        'ALTER TABLE public.%I ATTACH PARTITION %s %s', p_parent, v_full, v_bounds)
      WHEN v_has = v_bounds THEN CASE WHEN v_taken THEN 'rename the object that has its name; ' ELSE '' END
        || format('ALTER TABLE %s RENAME TO %I', v_leaf, p_name)
      ELSE format('ALTER TABLE public.%I DETACH PARTITION %s; its rows are not seen then', p_parent, v_leaf) END);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_leaf_fault IS
  'Why a partition cannot be made, and what to do. Internal.';

-- fn_queue_partitions_ensure() → {created, moved, failed: {leaf: {why, remedy}}}: creates the leaves from the current
-- period to as far ahead as queue_partitioned requires, each with its guard against TRUNCATE, then those of earlier
-- periods. Rows of a new leaf's period that were stored in the default partition move into the leaf. Once rows have
-- moved for 20 seconds, the next call continues, and no rows move when statement_timeout has fired already. It waits
-- for a table at most 1.5 s, since other sessions wait behind it: 55P03. A leaf whose name or time another table has is
-- not created, and the others are: rows of its time remain in the default partition.
CREATE OR REPLACE FUNCTION public.fn_queue_partitions_ensure() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO, MDY' -- the bounds are written as text
-- leaves are stored as the tables of migrations are, whatever the session or the database would choose
SET default_tablespace = '' SET default_table_access_method = heap AS $fn$
DECLARE
  v_plan public.queue_partitioned;
  v_default text;
  v_start timestamp;
  v_name text;
  v_from timestamptz;
  v_to timestamptz;
  v_rows bigint;
  v_created int := 0;
  v_moved bigint := 0;
  v_fault jsonb;
  v_failed jsonb := jsonb_build_object();
  v_late boolean := public.fn_queue_step_late('57014'::text);
  v_wait text := current_setting('lock_timeout');
  v_until timestamptz := clock_timestamp() + interval '20 seconds';
BEGIN
  PERFORM public.fn_queue_lease_wait('partitions'::text);
  IF v_wait::interval NOT BETWEEN interval '1 ms' AND interval '1500 ms' THEN -- 0: without limit
    PERFORM set_config('lock_timeout', '1500ms', true);
  END IF;
  FOR v_plan IN SELECT * FROM public.queue_partitioned ORDER BY parent LOOP
    v_default := v_plan.parent || '_default';
    FOR v_start IN EXECUTE format(
      'SELECT p.start FROM (SELECT generate_series(date_trunc($1, now() AT TIME ZONE ''UTC''), '
      'date_trunc($1, now() AT TIME ZONE ''UTC'') + $2, $3) AS start '
      'UNION SELECT date_trunc($1, d.%I AT TIME ZONE ''UTC'') FROM public.%I d WHERE isfinite(d.%1$I)) p '
      'ORDER BY p.start < date_trunc($1, now() AT TIME ZONE ''UTC''), p.start',
      v_plan.time_column, v_default) USING v_plan.step, v_plan.ahead, ('1 ' || v_plan.step)::interval
    LOOP
      v_name := v_plan.parent || to_char(v_start, CASE v_plan.step WHEN 'day' THEN '_YYYY_MM_DD' ELSE '_YYYY_MM' END);
      v_from := v_start AT TIME ZONE 'UTC';
      v_to := (v_start + ('1 ' || v_plan.step)::interval) AT TIME ZONE 'UTC';
      v_fault := public.fn_queue_leaf_fault(v_plan.parent, v_name, v_from, v_to);
      IF v_fault IS NOT NULL THEN
        v_failed := v_failed || jsonb_build_object(v_name, v_fault);
        CONTINUE;
      END IF;
      CONTINUE WHEN to_regclass('public.' || v_name) IS NOT NULL;
      EXECUTE format('SELECT count(*) FROM public.%I d WHERE d.%I >= $1 AND d.%2$I < $2', v_default, v_plan.time_column)
        INTO v_rows USING v_from, v_to;
      CONTINUE WHEN v_rows > 0 AND (v_late OR v_moved > 0 AND clock_timestamp() > v_until);
      EXECUTE format('CREATE TABLE public.%I (LIKE public.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name,
        v_plan.parent);
      EXECUTE format('COMMENT ON TABLE public.%I IS %L', v_name,
        format('Rows of %s of %s (UTC).', v_plan.parent,
          to_char(v_start, CASE v_plan.step WHEN 'day' THEN 'YYYY-MM-DD' ELSE 'YYYY-MM' END)));
      IF v_rows > 0 THEN
        -- the default partition is detached here and so has no row triggers: moving a row changes nothing in it
        EXECUTE format('ALTER TABLE public.%I DETACH PARTITION public.%I', v_plan.parent, v_default);
        EXECUTE format('WITH gone AS (DELETE FROM public.%I d WHERE d.%I >= $1 AND d.%2$I < $2 RETURNING *) '
          'INSERT INTO public.%3$I SELECT * FROM gone', v_default, v_plan.time_column, v_name) USING v_from, v_to;
        v_moved := v_moved + v_rows;
        EXECUTE format('ALTER TABLE public.%I ATTACH PARTITION public.%I DEFAULT', v_plan.parent, v_default);
      END IF;
      EXECUTE format('ALTER TABLE public.%I ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
        v_plan.parent, v_name, v_from, v_to);
      EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON public.%I FOR EACH STATEMENT EXECUTE FUNCTION '
        'public.fn_refuse_change()',
        'trg_' || v_name || '_no_truncate', v_name);
      v_created := v_created + 1;
    END LOOP;
  END LOOP;
  PERFORM set_config('lock_timeout', v_wait, true);
  RETURN jsonb_build_object('created', v_created, 'moved', v_moved, 'failed', v_failed);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_partitions_ensure TO :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_partitions_ensure IS
  'Creates the partitions of the coming periods. Called by migrate up, retention_sweep and doctor.';

-- fn_queue_retention_before(key) → the time before which rows may be deleted. 0 days, or a value that cannot be read,
-- keeps everything: -infinity. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_retention_before(p_key text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_days int := NULLIF(public.fn_cfg_int(p_key, 0), 0);
BEGIN
  RETURN now() - make_interval(days => least(v_days, 100000));
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_retention_before IS
  'The time before which a retention key allows rows to be deleted; at 0 days no row is old enough. Internal.';

-- fn_queue_letter_kept(): trigger function of the dead letter tables. It refuses, for every role, to delete a resolved
-- dead letter before its retention is over, and an open one always.
CREATE OR REPLACE FUNCTION public.fn_queue_letter_kept() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF OLD.resolved_at < public.fn_queue_retention_before('retention.dead_letters_days') THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'a row of % cannot be deleted: a dead letter is kept for retention.dead_letters_days after it was '
    'resolved', TG_TABLE_NAME
    USING ERRCODE = '42501', HINT = 'resolve or cancel it; the retention sweep deletes it later';
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_letter_kept IS
  'Trigger: refuses to delete a dead letter before retention.dead_letters_days are over.';

CREATE OR REPLACE TRIGGER trg_job_dead_letter_no_delete BEFORE DELETE ON public.job_dead_letter
  FOR EACH ROW EXECUTE FUNCTION public.fn_queue_letter_kept();
CREATE OR REPLACE TRIGGER trg_iu_route_dead_letter_no_delete BEFORE DELETE ON public.iu_route_dead_letter
  FOR EACH ROW EXECUTE FUNCTION public.fn_queue_letter_kept();

-- fn_queue_leaves_before(parent, time) → the leaves of a partitioned table that end before the time, oldest first. A
-- partition with another name or another beginning than fn_queue_partitions_ensure gives is none of them. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_leaves_before(p_parent text, p_before timestamptz) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC' SET datestyle = 'ISO, MDY' AS $fn$ -- the bounds are compared as text
BEGIN
  RETURN ARRAY(WITH leaf AS MATERIALIZED ( -- only a bound of such a leaf is a time
    SELECT c.relname::text, pg_get_expr(c.relpartbound, 0) AS bounds FROM public.queue_partitioned p
    JOIN pg_inherits i ON i.inhparent = to_regclass('public.' || quote_ident(p.parent))
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE p.parent = p_parent
      AND c.relname ~ ('^' || p.parent || '_[0-9]{4}(_[0-9]{2})' || CASE p.step WHEN 'day' THEN '{2}$' ELSE '{1}$' END)
      AND c.relname < p.parent || to_char(date_trunc(p.step, p_before AT TIME ZONE 'UTC'),
        CASE p.step WHEN 'day' THEN '_YYYY_MM_DD' ELSE '_YYYY_MM' END) COLLATE "C"
      AND starts_with(pg_get_expr(c.relpartbound, 0), format('FOR VALUES FROM (''%s 00:00:00+00'') TO (',
        rpad(replace(substring(c.relname, length(p.parent) + 2), '_', '-'), 10, '-01'))))
    SELECT l.relname FROM leaf l
    WHERE substring(l.bounds, ' TO [(]''([^'']+)''[)]$')::timestamptz <= p_before
    ORDER BY l.relname COLLATE "C");
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_leaves_before IS
  'The leaves of a partitioned table that end before a time. Internal.';

-- fn_queue_leaf_routed(leaf of event_outbox) → whether every event in the leaf is routed, that is, has an attempt or a
-- dead letter itself. An event that has neither, while another event with its id was routed, gets its dead letter
-- here, as it would when it is read; at most 1,000 in one call, and with more the answer is false. A PostgreSQL
-- snapshot could not show this for events that came from another cluster. A caller that is about to drop the leaf locks
-- out its writers first. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_leaf_routed(p_leaf text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
DECLARE
  v_left public.event_outbox[];
  v_part record;
  v_dead bigint := 0;
BEGIN
  EXECUTE format('SELECT array_agg(x.e) FROM (SELECT e::public.event_outbox AS e FROM public.%I e '
    'WHERE NOT EXISTS (SELECT 1 FROM public.iu_route_attempt a '
    'WHERE (a.event_id, a.event_domain, a.event_type) = (e.id, e.event_domain, e.event_type)) '
    'AND NOT EXISTS (SELECT 1 FROM public.iu_route_dead_letter d '
    'WHERE d.event_id = e.id AND public.fn_iu_route_dead_letter_of(d, e.event_domain, e.created_at)) LIMIT 1000) x',
    p_leaf) INTO v_left;
  FOR v_part IN
    SELECT r.worker_name, array_agg(u::public.event_outbox) AS events FROM unnest(v_left) u
    JOIN public.iu_outbound_route r ON r.event_domain = u.event_domain
    WHERE EXISTS (SELECT FROM public.iu_route_attempt a WHERE a.event_id = u.id)
      OR EXISTS (SELECT FROM public.iu_route_dead_letter d
        WHERE d.event_id = u.id AND d.failure_code <> 'ROUTE_DUPLICATE_ID')
    GROUP BY r.worker_name
  LOOP
    v_dead := v_dead + public.fn_iu_route_dead_duplicates(v_part.events, v_part.worker_name);
  END LOOP;
  RETURN v_left IS NULL OR cardinality(v_left) < 1000 AND v_dead = cardinality(v_left);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_leaf_routed IS
  'Whether all events of a leaf are routed. Internal.';

-- fn_event_stamps_off() → the triggers that set created_at and created_xid of events and are not ENABLE ALWAYS: those
-- of the tables and of the leaves of event_outbox. Internal.
CREATE OR REPLACE FUNCTION public.fn_event_stamps_off() RETURNS TABLE (relation regclass, trigger_name name)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN QUERY
  SELECT t.tgrelid::regclass, t.tgname FROM (VALUES ('public.events'::regclass, 'trg_events_stamp'::name),
    ('public.event_outbox'::regclass, 'trg_event_outbox_admit'::name)) e (relation, trigger_name)
  CROSS JOIN LATERAL (SELECT e.relation UNION ALL
    SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = e.relation) r (oid)
  JOIN pg_trigger t ON t.tgrelid = r.oid AND t.tgname = e.trigger_name
  WHERE t.tgenabled <> 'A';
END
$fn$;
COMMENT ON FUNCTION public.fn_event_stamps_off IS
  'The triggers that stamp events and do not always fire. Internal.';

-- fn_event_stamps_always(): makes the triggers that set created_at and created_xid fire for logical replication too. It
-- does so at the first call while no session writes events, so that an upgrade does not wait for writers. Internal.
CREATE OR REPLACE FUNCTION public.fn_event_stamps_always() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $fn$
DECLARE
  v_trigger record;
BEGIN
  FOR v_trigger IN SELECT * FROM public.fn_event_stamps_off() LOOP
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', v_trigger.relation, v_trigger.trigger_name);
  END LOOP;
EXCEPTION WHEN lock_not_available THEN
  NULL; -- fn_routing_loaded tries again
END
$fn$;
COMMENT ON FUNCTION public.fn_event_stamps_always IS
  'Makes the triggers that stamp events fire for logical replication too. Internal.';

-- fn_queue_retention_sweep() → {created, moved, letters, attempts, keys, roots, reads, cleaned, hosts, webhooks,
-- webhooks_after, dropped: [leaves], kept: {leaf: why}}. One run deletes at most 10,000 dead letters of each table,
-- empties 10,000 finished jobs, and deletes 200,000 attempts, keys and reads, and 1,000 hosts. The host that ticks runs
-- it again at once while one of these numbers shows that more may be left. Webhook events:
-- fn_webhook_retention_sweep. Leaves are created and dropped last, after all work on rows, because that locks their
-- parents and default partitions until the run commits. If a lock is not granted within 50 ms, the next run repeats the
-- step: a session that waits for a lock makes other sessions wait behind it. The leaves to drop are read first: at
-- least one, and no more after a third of statement_timeout. Those that the last run read but kept are read last. A
-- leaf that cannot be dropped, because another login's view depends on it or it has another owner, is kept alone, and
-- is in queue_quarantine (step partitions) until it is gone; so is one that cannot be created, until it can.
-- Tick worker retention_sweep.
CREATE OR REPLACE FUNCTION public.fn_queue_retention_sweep() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' SET jit = off AS $fn$
DECLARE
  c_unread CONSTANT text := 'not read yet: read in a later run';
  v_events timestamptz := public.fn_queue_retention_before('retention.events_days');
  v_jobs timestamptz := public.fn_queue_retention_before('retention.jobs_days');
  v_made jsonb := jsonb_build_object('created', 0, 'moved', 0);
  v_step text;
  v_limit int;
  v_did jsonb := '{"letters": 0, "attempts": 0, "cleaned": 0}'::jsonb;
  v_webhooks jsonb;
  v_last jsonb := (SELECT w.last_result FROM public.queue_tick_worker w WHERE w.worker_name = 'retention_sweep');
  v_until timestamptz := statement_timestamp()
    + COALESCE(NULLIF(current_setting('statement_timeout')::interval, interval '0') / 3, interval '20 seconds');
  v_parent text;
  v_leaf text;
  v_part jsonb;
  v_counts jsonb := jsonb_build_object(); -- by leaf of job_history: what its jobs take from the counters
  v_read int := 0;
  v_late boolean := false;
  v_leaves text[] := ARRAY[]::text[];
  v_dropped text[] := ARRAY[]::text[];
  v_kept jsonb := jsonb_build_object();
  v_halted jsonb := jsonb_build_object(); -- by parent, '' = all: why no more leaves are dropped in this run
  v_error text;
BEGIN
  PERFORM 1 FROM public.dot_iu_runtime_lease WHERE lease_name = 'retention_sweep' FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    PERFORM public.fn_queue_lease_check('retention_sweep'::text);
    RETURN jsonb_build_object('skipped', 'another run is under way');
  END IF;

  FOR v_step, v_limit IN SELECT * FROM (VALUES ('sweep_job_dead_letters', 10000), ('sweep_event_dead_letters', 10000),
    ('sweep_attempts', 200000), ('sweep_ended_keys', 1000000), ('sweep_keys', 200000), ('sweep_roots', 1000000),
    ('sweep_reads', 200000), ('sweep_history', 10000), ('sweep_hosts', 1000)) s (step, most)
  LOOP
    v_did := public.fn_queue_step_sum(v_did, public.fn_queue_step(v_step, v_limit));
    IF v_did ? 'timed_out' THEN -- statement_timeout has fired and no longer limits the rest of this run
      RETURN v_made || v_did;
    END IF;
  END LOOP;
  v_webhooks := public.fn_webhook_retention_sweep(COALESCE((v_last ->> 'webhooks_after')::bigint, 0));
  IF v_webhooks ? 'timed_out' THEN
    RETURN v_made || v_did || v_webhooks;
  END IF;

  -- The slow work is done; now the steps that lock. Creating a leaf locks the default partition until the run commits,
  -- and dropping a leaf locks its parent. The second round is for rows that a default partition had.
  FOR v_round IN 1..2 LOOP
    FOR v_parent, v_leaf IN
      SELECT p.parent, l FROM (VALUES ('event_outbox', v_events), ('job_history', v_jobs)) p (parent, before),
        unnest(public.fn_queue_leaves_before(p.parent, p.before)) l
      ORDER BY (v_last -> 'kept' ->> l <> c_unread) IS TRUE, p.parent DESC, l
    LOOP
      CONTINUE WHEN v_leaf = ANY (v_leaves) OR v_kept ? v_leaf;
      IF v_late OR v_read > 0 AND clock_timestamp() > v_until THEN
        v_kept := v_kept || jsonb_build_object(v_leaf, c_unread);
        CONTINUE;
      END IF;
      v_read := v_read + 1;
      BEGIN
        IF v_parent = 'job_history' THEN
          EXECUTE format('SELECT COALESCE(jsonb_agg(to_jsonb(c)), ''[]'') FROM (SELECT h.job_kind AS k1, '
            'h.event_domain AS k2, h.status AS k3, -count(*) AS n FROM public.%I h GROUP BY 1, 2, 3) c', v_leaf)
            INTO v_part;
          v_counts := v_counts || jsonb_build_object(v_leaf, v_part);
          v_leaves := v_leaves || v_leaf;
          CONTINUE;
        END IF;
        -- an open transaction may have written events into it that are not visible yet
        EXECUTE format('LOCK TABLE public.%I IN SHARE MODE', v_leaf);
        IF public.fn_queue_leaf_routed(v_leaf) THEN
          v_leaves := v_leaves || v_leaf;
        ELSE
          v_kept := v_kept || jsonb_build_object(v_leaf, 'has events that no cursor has passed');
        END IF;
      EXCEPTION WHEN lock_not_available THEN
        v_kept := v_kept || jsonb_build_object(v_leaf, 'busy: checked again in the next run');
      WHEN query_canceled OR assert_failure OR OTHERS THEN
        v_late := public.fn_queue_step_late(SQLSTATE::text);
        IF v_late IS NULL THEN
          RAISE;
        END IF;
        v_kept := v_kept || jsonb_build_object(v_leaf, CASE
          WHEN NOT v_late THEN 'failed: ' || left(public.fn_mask_said(SQLERRM), 500)
          ELSE 'not read within statement_timeout: read again in a later run' END);
        IF NOT v_late THEN -- as for a leaf of another owner
          PERFORM public.fn_queue_step_failed('partitions'::text, v_leaf, SQLSTATE::text, SQLERRM::text);
        END IF;
      END;
    END LOOP;
    CONTINUE WHEN v_round = 2;
    BEGIN
      PERFORM public.fn_routing_loaded();
      v_made := public.fn_queue_partitions_ensure();
      FOR v_leaf, v_part IN SELECT * FROM jsonb_each(v_made -> 'failed') LOOP
        v_error := concat_ws('; ', v_part ->> 'why', v_part ->> 'remedy');
        v_kept := v_kept || jsonb_build_object(v_leaf, 'failed: ' || v_error);
        PERFORM public.fn_queue_step_failed('partitions'::text, v_leaf, '55000'::text, v_error);
      END LOOP;
      v_made := v_made - 'failed';
      DELETE FROM public.queue_quarantine q WHERE q.step = 'partitions' AND q.target = 'ensure';
    EXCEPTION WHEN lock_not_available THEN
      v_kept := v_kept || '{"partitions": "busy: created in the next run"}';
    WHEN query_canceled OR assert_failure OR OTHERS THEN
      v_late := public.fn_queue_step_late(SQLSTATE::text) OR v_late;
      IF v_late IS NULL THEN
        RAISE;
      END IF;
      v_kept := v_kept || '{"partitions": "failed: see queue_quarantine"}';
      PERFORM public.fn_queue_step_failed('partitions'::text, 'ensure'::text, SQLSTATE::text, SQLERRM::text);
    END;
  END LOOP;
  v_leaves := public.fn_queue_leaves_before('queue_metric_sample',
    public.fn_queue_retention_before('retention.samples_days')) || v_leaves;

  -- Each leaf in a separate subtransaction: one that cannot be dropped does not keep the others.
  FOREACH v_leaf IN ARRAY v_leaves LOOP
    v_parent := regexp_replace(v_leaf, '_[0-9]{4}_[0-9]{2}(_[0-9]{2})?$', '');
    IF v_halted ?| ARRAY['', v_parent] THEN
      v_kept := v_kept || jsonb_build_object(v_leaf, COALESCE(v_halted ->> '', v_halted ->> v_parent));
      CONTINUE;
    END IF;
    BEGIN
      INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
      SELECT 'job', c.k1, c.k2, c.k3, c.n
      FROM jsonb_to_recordset(v_counts -> v_leaf) AS c (k1 text, k2 text, k3 text, n bigint);
      EXECUTE format('DROP TABLE public.%I', v_leaf);
      v_dropped := v_dropped || v_leaf;
    EXCEPTION WHEN lock_not_available THEN
      v_halted := v_halted || jsonb_build_object(v_parent, 'busy: dropped in the next run');
      v_kept := v_kept || jsonb_build_object(v_leaf, v_halted ->> v_parent);
    WHEN query_canceled OR assert_failure OR OTHERS THEN
      v_late := public.fn_queue_step_late(SQLSTATE::text);
      IF v_late IS NULL THEN
        RAISE;
      END IF;
      IF v_late THEN
        v_halted := v_halted || '{"": "not dropped within statement_timeout: dropped in a later run"}';
        v_kept := v_kept || jsonb_build_object(v_leaf, v_halted ->> '');
        CONTINUE;
      END IF;
      GET STACKED DIAGNOSTICS v_error = PG_EXCEPTION_DETAIL; -- names the objects that depend on it
      v_error := left(public.fn_mask_said(concat_ws(': ', SQLERRM, NULLIF(v_error, ''))), 500);
      v_kept := v_kept || jsonb_build_object(v_leaf, 'failed: ' || v_error);
      PERFORM public.fn_queue_step_failed('partitions'::text, v_leaf, SQLSTATE::text, v_error);
    END;
  END LOOP;
  DELETE FROM public.queue_quarantine q
  WHERE q.step = 'partitions' AND q.target <> 'ensure'
    AND (NOT v_kept ?| ARRAY[q.target, 'partitions'] OR q.target = ANY (v_dropped));
  RETURN v_made || v_webhooks || v_did || jsonb_build_object('dropped', v_dropped, 'kept', v_kept);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_retention_sweep TO :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_retention_sweep IS
  'Tick retention_sweep: creates the coming partitions, drops those past their retention.';
