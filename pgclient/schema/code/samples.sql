-- Marks on the history graphs, and the tick metrics_sampler, which stores a snapshot and samples once a minute.

COMMENT ON TABLE public.queue_mark IS
  'Labels (a deploy, for example) that are drawn on every history graph. Append-only.';
GRANT SELECT ON public.queue_mark TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";

COMMENT ON TABLE public.queue_metric_sample IS
  'Metrics for the analysis of incidents, once a minute, partitioned by day, append-only; at = the minute. From a '
  'snapshot: waiting (of events up to 10,000) and oldest_age_seconds per queue and domain, for the hundred with the '
  'longest wait; silent_executors, silent_age_seconds per executor and alert; hosts_alive; picture_ms, how long the '
  'snapshot took. dead_open per source. broadcast_percent over 24 h, in total and per domain. Counted over the whole '
  'minute: delivered_per_minute, dead_per_minute, jobs_done_per_minute.';
COMMENT ON COLUMN public.queue_metric_sample.labels IS 'what the value is about; {} = everything';
GRANT SELECT ON public.queue_metric_sample TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";

COMMENT ON TABLE public.queue_past_picture IS
  'Results of fn_queue_picture, one per minute over the last 24 hours, for consoles that look back.';

CREATE OR REPLACE TRIGGER trg_queue_mark_immutable BEFORE UPDATE OR DELETE ON public.queue_mark
  FOR EACH ROW EXECUTE FUNCTION public.fn_refuse_change();
CREATE OR REPLACE TRIGGER trg_queue_mark_no_truncate BEFORE TRUNCATE ON public.queue_mark
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();

-- fn_queue_mark(label, actor) → {mark_id, at, label, audit_id}: adds a label of 1 to 200 characters to the history
-- graphs, at the current time. refused: repeated (the same person set the same label within the last minute: a graph
-- could not show both).
CREATE OR REPLACE FUNCTION public.fn_queue_mark(p_label text, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_label text := public.fn_trimmed(p_label);
  v_mark public.queue_mark;
  v_audit bigint;
BEGIN
  IF v_label IS NULL OR length(v_label) > 200 THEN
    RAISE EXCEPTION 'p_label must have 1 to 200 characters, not %', length(COALESCE(v_label, ''))
      USING ERRCODE = '22023', HINT = 'write what happened, such as: deploy 4.2';
  END IF;
  PERFORM public.fn_queue_lease_wait('queue_mark'::text);
  SELECT * INTO v_mark FROM public.queue_mark m
  WHERE m.at BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp() + interval '5 seconds'
    AND m.label = v_label AND m.created_by = v_actor
    ORDER BY m.at DESC LIMIT 1;
  IF FOUND THEN
    RETURN jsonb_build_object('mark_id', v_mark.mark_id) || public.fn_operator_refused(p_action => 'mark'::text,
      p_target => 'mark ' || v_mark.mark_id, p_actor => v_actor, p_reason => v_label, p_rule => 'repeated'::text,
      p_why => format('%s set a mark with this label at %s, less than a minute ago: it is not repeated', v_actor,
        to_char(v_mark.at AT TIME ZONE 'UTC', 'HH24:MI:SS"Z"')));
  END IF;
  INSERT INTO public.queue_mark (label, created_by) VALUES (v_label, v_actor) RETURNING * INTO v_mark;
  v_audit := public.fn_operator_audit(
    p_action => 'mark', p_target => 'mark ' || v_mark.mark_id, p_actor => v_actor, p_reason => v_mark.label,
    p_after => jsonb_build_object('at', v_mark.at, 'label', v_mark.label),
    p_filter => NULL::text, p_frozen_count => NULL::bigint, p_before => NULL::jsonb, p_outcome => 'done'::text);
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'mark', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', v_mark.at));
  RETURN jsonb_build_object('mark_id', v_mark.mark_id, 'at', v_mark.at, 'label', v_mark.label, 'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_mark TO :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_mark IS 'Adds a label to every history graph.';

CREATE OR REPLACE TRIGGER trg_queue_metric_sample_immutable BEFORE UPDATE OR DELETE ON public.queue_metric_sample
  FOR EACH ROW EXECUTE FUNCTION public.fn_refuse_change();
CREATE OR REPLACE TRIGGER trg_queue_metric_sample_no_truncate BEFORE TRUNCATE ON public.queue_metric_sample
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();

-- fn_queue_picture_at(time, steps) → a stored snapshot in the form of fn_queue_picture. steps: 0 = the last snapshot at
-- or before the time; -n = n snapshots earlier, or the oldest; n = n snapshots later. first_at: the time of the oldest
-- stored snapshot; NULL only if no snapshot is stored. The other columns are NULL if there is no snapshot at that
-- position.
CREATE OR REPLACE FUNCTION public.fn_queue_picture_at(p_at timestamptz, p_steps int DEFAULT 0,
  OUT taken_at timestamptz, OUT took_ms numeric, OUT body text, OUT first_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF p_at IS NULL OR p_steps IS NULL OR p_steps NOT BETWEEN -100000 AND 100000 THEN
    RAISE EXCEPTION 'p_at must not be null, and p_steps must be -100000 to 100000' USING ERRCODE = '22023';
  END IF;
  IF p_steps > 0 THEN
    SELECT k.taken_at INTO taken_at FROM public.queue_past_picture k
    WHERE k.taken_at > p_at ORDER BY k.taken_at OFFSET p_steps - 1 LIMIT 1;
  ELSIF p_steps = 0 THEN
    taken_at := (SELECT max(k.taken_at) FROM public.queue_past_picture k WHERE k.taken_at <= p_at);
  ELSE
    SELECT min(x.taken_at) INTO taken_at FROM (
      SELECT k.taken_at FROM public.queue_past_picture k WHERE k.taken_at < p_at ORDER BY k.taken_at DESC
        LIMIT -p_steps) x;
  END IF;
  SELECT k.took_ms, k.body INTO took_ms, body FROM public.queue_past_picture k
    WHERE k.taken_at = fn_queue_picture_at.taken_at;
  first_at := (SELECT min(k.taken_at) FROM public.queue_past_picture k);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_picture_at TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_picture_at IS
  'A snapshot of the last 24 hours, for consoles that look back.';

-- fn_metrics_rows(minute, snapshot, milliseconds that it took, first and last whole minute) → the samples of one run.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_metrics_rows(p_minute timestamptz, p_picture jsonb, p_took_ms numeric,
  p_first timestamptz, p_whole timestamptz)
  RETURNS TABLE (at timestamptz, metric text, labels jsonb, value double precision)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH queues AS (
    SELECT jsonb_build_object('queue', w.row ->> 'queue', 'domain', w.row ->> 'domain') AS labels,
      (w.row ->> 'waiting')::double precision AS waiting, (w.row ->> 'age_seconds')::double precision AS age
    FROM jsonb_array_elements(p_picture -> 'waiting') WITH ORDINALITY w (row, n) WHERE w.n <= 100
  ), dead AS (
    -- exact: with many groups the section health has only the largest
    SELECT s.source, COALESCE((SELECT r.n FROM public.queue_counter_rank r
        WHERE r.scope = 'open_dead_' || s.source AND r.k1 = '' AND r.k2 = '' AND r.k3 = ''), 0)
      + COALESCE(sum(d.n), 0) AS open
    FROM (VALUES ('webhook'), ('job'), ('event')) s (source)
    LEFT JOIN public.fn_queue_counter_unfolded('{dead_webhook,dead_job,dead_event}'::text[]) d
      ON d.scope = 'dead_' || s.source
    GROUP BY s.source
  ), silent AS (
    SELECT a.row ->> 'subject' AS executor, a.row ->> 'alert_key' AS alert,
      (a.row ->> 'age_seconds')::double precision AS age,
      row_number() OVER (ORDER BY (a.row ->> 'ratio')::numeric DESC) AS n
    FROM jsonb_array_elements(p_picture -> 'alerts') a (row) WHERE a.row ->> 'kind' = 'silence'
  )
  SELECT p_minute, x.metric, x.labels, x.value FROM (
    SELECT 'waiting' AS metric, q.labels, q.waiting AS value FROM queues q
    UNION ALL SELECT 'oldest_age_seconds', q.labels, q.age FROM queues q
    UNION ALL SELECT 'dead_open', jsonb_build_object('source', l.source), l.open FROM dead l
    UNION ALL SELECT 'silent_executors', '{}', count(*) FROM silent
    UNION ALL SELECT 'silent_age_seconds', jsonb_build_object('executor', s.executor, 'alert', s.alert), s.age
      FROM silent s WHERE s.n <= 100
    UNION ALL SELECT 'hosts_alive', '{}', (p_picture #>> '{flow,hosts_alive}')::double precision
    UNION ALL (SELECT 'broadcast_percent', CASE WHEN b.event_domain = '' THEN '{}'
      ELSE jsonb_build_object('domain', b.event_domain) END, b.percent
      FROM public.queue_broadcast_share b ORDER BY b.event_domain <> '', b.broadcast_24h DESC, b.event_domain LIMIT 100)
    UNION ALL SELECT 'picture_ms', '{}', p_took_ms) x;
  RETURN QUERY
  WITH counted AS MATERIALIZED (
    SELECT c.scope, to_timestamp(c.k3::bigint) AS at, sum(c.n) AS n FROM public.v_queue_counter c
    WHERE c.scope IN ('delivered_1m', 'dead_1m', 'job_done_1m') AND c.k3 ~ '^[0-9]+$' GROUP BY 1, 2
  )
  SELECT m.at, s.metric, '{}'::jsonb, COALESCE(c.n, 0)::double precision
  FROM generate_series(greatest(p_first, p_minute - interval '118 minutes'), p_whole, interval '1 minute') m (at)
  CROSS JOIN (VALUES ('delivered_1m', 'delivered_per_minute'), ('dead_1m', 'dead_per_minute'),
    ('job_done_1m', 'jobs_done_per_minute')) s (scope, metric)
  LEFT JOIN counted c ON c.scope = s.scope AND c.at = m.at;
END
$fn$;
COMMENT ON FUNCTION public.fn_metrics_rows IS 'The samples of one run of metrics_sampler. Internal.';

-- fn_step_sample: the step sample (quarantine.sql) stores samples that failed in a batch, each as JSON, with the minute
-- in which they were sampled.
CREATE OR REPLACE FUNCTION public.fn_step_sample(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_n bigint;
BEGIN
  INSERT INTO public.queue_metric_sample (at, metric, labels, value)
  SELECT (t.row ->> 'at')::timestamptz, t.row ->> 'metric', t.row -> 'labels', (t.row ->> 'value')::double precision
  FROM (SELECT x::jsonb AS row FROM unnest(p_only) x) t;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  RETURN jsonb_build_object('samples', v_n);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_sample IS
  'Step sample (see fn_queue_step): stores samples that failed in a batch. Internal.';

-- fn_step_sample_broadcast: the step sample_broadcast samples the broadcast share. The step is its own only target.
CREATE OR REPLACE FUNCTION public.fn_step_sample_broadcast(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN CASE WHEN 'share' = ANY (p_except) THEN '{}' ELSE public.fn_event_broadcast_sample() END;
END
$fn$;
COMMENT ON FUNCTION public.fn_step_sample_broadcast IS
  'Step sample_broadcast (see fn_queue_step): samples the broadcast share. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_sample_broadcast_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT 'share'::text EXCEPT SELECT unnest(p_except));
END
$fn$;
COMMENT ON FUNCTION public.fn_step_sample_broadcast_targets IS 'The target of the step sample_broadcast. Internal.';

-- fn_metrics_sampler_run() → {samples, broadcast}: one set of samples a minute, however often it is called. Counts per
-- minute are sampled for every complete minute since the last sample, at most over the two hours for which counters are
-- kept. A minute is complete 10 s after its end, because a late commit counts in the minute in which its transaction
-- began. The broadcast share is sampled first (fn_event_broadcast_sample). Tick worker metrics_sampler.
CREATE OR REPLACE FUNCTION public.fn_metrics_sampler_run() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
DECLARE
  v_epoch bigint := floor(extract(epoch FROM now()));
  v_minute timestamptz := to_timestamp(v_epoch - v_epoch % 60);
  v_whole timestamptz := to_timestamp((v_epoch - 10) - (v_epoch - 10) % 60 - 60);
  v_first timestamptz; -- the first minute to count
  v_sampled timestamptz;
  v_counted timestamptz;
  v_broadcast jsonb;
  v_taken record;
  v_picture jsonb;
  v_rows bigint;
  v_past jsonb;
  v_late boolean;
  v_samples bigint := 0;
BEGIN
  -- a call outside of the tick locks the lease of the tick too, so that only one run is under way
  PERFORM 1 FROM public.dot_iu_runtime_lease WHERE lease_name = 'metrics_sampler' FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    PERFORM public.fn_queue_lease_check('metrics_sampler'::text);
    RETURN jsonb_build_object('samples', 0, 'skipped', 'another run is under way');
  END IF;
  v_samples := COALESCE((public.fn_queue_step_rest('sample'::text) ->> 'samples')::bigint, 0);
  -- Samples that failed count as stored: a step retries them and stores them with their minute.
  SELECT max((f.row ->> 'at')::timestamptz) FILTER (WHERE f.row ->> 'metric' = 'hosts_alive'),
    max((f.row ->> 'at')::timestamptz) FILTER (WHERE f.row ->> 'metric' = 'delivered_per_minute')
  INTO v_sampled, v_counted FROM (
    SELECT x::jsonb AS row FROM public.queue_step_pending p, unnest(p.targets) x WHERE p.step = 'sample'
    UNION ALL SELECT q.target::jsonb FROM public.queue_quarantine q WHERE q.step = 'sample') f
  WHERE (f.row ->> 'at')::timestamptz <= v_minute;
  SELECT greatest(v_sampled, max(s.at)) INTO v_sampled FROM public.queue_metric_sample s WHERE s.metric = 'hosts_alive'
    AND s.at > v_minute - interval '2 hours' AND s.at <= v_minute;
  IF v_sampled >= v_minute THEN
    RETURN jsonb_build_object('samples', v_samples, 'skipped', 'this minute has its samples');
  END IF;

  v_broadcast := public.fn_queue_step('sample_broadcast'::text, 1);
  IF v_broadcast ? 'timed_out' THEN
    RETURN jsonb_build_object('samples', 0, 'timed_out', true);
  END IF;
  SELECT * INTO v_taken FROM public.fn_queue_picture(interval '10 seconds');
  v_picture := v_taken.body::jsonb;
  BEGIN
    INSERT INTO public.queue_past_picture (taken_at, took_ms, body)
      VALUES (v_taken.taken_at, v_taken.took_ms, v_taken.body)
    ON CONFLICT DO NOTHING;
    DELETE FROM public.queue_quarantine q WHERE q.step = 'sample_picture';
  EXCEPTION WHEN OTHERS THEN
    PERFORM public.fn_queue_step_failed('sample_picture'::text, 'picture'::text, SQLSTATE::text, SQLERRM::text);
  END;
  v_past := public.fn_queue_step('sweep_pictures'::text, 10000);
  IF v_past ? 'timed_out' THEN
    RETURN jsonb_build_object('samples', 0, 'timed_out', true);
  END IF;
  SELECT greatest(v_counted, max(s.at)) INTO v_counted FROM public.queue_metric_sample s
  WHERE s.metric = 'delivered_per_minute' AND s.at > v_minute - interval '2 hours' AND s.at <= v_minute;
  v_first := v_counted + interval '1 minute';
  IF v_counted IS NULL THEN -- no sample within two hours: start at the first minute that has counters
    SELECT to_timestamp(min(c.k3::bigint)) INTO v_first FROM public.v_queue_counter c
    WHERE c.scope IN ('delivered_1m', 'dead_1m', 'job_done_1m') AND c.k3 ~ '^[0-9]+$';
    v_first := COALESCE(v_first, v_whole);
  END IF;
  BEGIN
    INSERT INTO public.queue_metric_sample (at, metric, labels, value)
    SELECT r.at, r.metric, r.labels, r.value
    FROM public.fn_metrics_rows(v_minute, v_picture, v_taken.took_ms, v_first, v_whole) r;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_samples := v_samples + v_rows;
  EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN
    v_late := public.fn_queue_step_late(SQLSTATE::text);
    IF v_late IS NULL THEN
      RAISE;
    END IF;
    PERFORM public.fn_queue_step_part('sample'::text, ARRAY(SELECT to_jsonb(r)::text
      FROM public.fn_metrics_rows(v_minute, v_picture, v_taken.took_ms, v_first, v_whole) r));
  END;
  IF v_late IS NOT TRUE THEN
    v_samples := v_samples + COALESCE((public.fn_queue_step_rest('sample'::text) ->> 'samples')::bigint, 0);
  END IF;

  RETURN jsonb_build_object('samples', v_samples, 'broadcast', v_broadcast);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_metrics_sampler_run TO :"dot_executor";
COMMENT ON FUNCTION public.fn_metrics_sampler_run IS
  'Tick metrics_sampler: stores one set of samples a minute.';
