-- Jobs: the counters of live jobs, finished jobs and open dead letters.

-- fn_job_lane_open(domain, kind): makes sure that job_lane has the queue lane of a job that was just written; the
-- trigger of job_queue calls it. 23514 = an invalid domain or kind, with the name of the violated check of job_lane. It
-- never waits: a lane that cannot be looked up or written at once is opened later, when the counter of its jobs is
-- folded. The same holds for SERIALIZABLE transactions, because two of them that open one lane would make each other
-- fail. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_lane_open(p_domain text, p_kind text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1ms' AS $$
DECLARE
  v_alone boolean := current_setting('transaction_isolation') <> 'serializable';
  v_reason text;
BEGIN
  BEGIN -- a subtransaction that writes nothing
    IF v_alone AND EXISTS (SELECT FROM public.job_lane l WHERE l.event_domain = p_domain AND l.job_kind = p_kind) THEN
      RETURN;
    END IF;
  EXCEPTION WHEN OTHERS THEN
    v_reason := SQLERRM;
  END;
  IF (p_domain ~ '^[a-z][a-z0-9_]{0,50}$') IS NOT TRUE THEN
    RAISE EXCEPTION 'event_domain % must match ^[a-z][a-z0-9_]{0,50}$', quote_nullable(left(p_domain, 60))
      USING ERRCODE = '23514', CONSTRAINT = 'chk_job_lane_domain';
  ELSIF (p_kind ~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$') IS NOT TRUE THEN
    RAISE EXCEPTION 'job_kind % must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$', quote_nullable(left(p_kind, 110))
      USING ERRCODE = '23514', CONSTRAINT = 'chk_job_lane_kind';
  END IF;
  IF NOT v_alone THEN
    RETURN;
  ELSIF v_reason IS NULL THEN
    BEGIN
      INSERT INTO public.job_lane (event_domain, job_kind) VALUES (p_domain, p_kind);
      RETURN;
    EXCEPTION WHEN OTHERS THEN
      v_reason := SQLERRM;
    END;
  END IF;
  RAISE LOG 'qtop: queue lane %/% was not opened, counter_compactor opens it: %', p_domain, p_kind, v_reason;
END $$;
COMMENT ON FUNCTION public.fn_job_lane_open IS
  'Opens the queue lane of a job for the trigger of job_queue; raises for an invalid domain or kind. Internal.';

-- fn_job_queue_counted() runs once per statement, after the rows are written: it checks the jobs, counts them, opens
-- queue lanes and keeps watermarks correct. Keys of the counter job: kind, domain, status, where status scheduled means
-- queued and not ready. The key of a time bucket (k3) is the start of the bucket in epoch seconds. A queue lane has few
-- buckets of several minutes each, because every snapshot reads all of them.
CREATE OR REPLACE FUNCTION public.fn_job_queue_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_kind text;
  v_domain text;
  v_status text;
  v_n bigint := 1;
  v_several boolean;
  v_plain boolean;
  v_direct boolean;
  v_used boolean;
  v_late boolean;
  v_below boolean;
  v_before timestamptz := clock_timestamp() - interval '500 milliseconds'; -- job_watermark.sql, step 3
  v_bytes int;
  v_content boolean; -- the payload of a row has a key that names content, or is no object
  v_five text := date_part('epoch', date_bin('5 minutes', now(), timestamptz 'epoch'))::bigint;
  v_stack text;
BEGIN
  IF TG_OP = 'INSERT' THEN
    -- Usually the statement writes one row, or several rows of one lane, with correct values: then cheap statements are
    -- enough.
    BEGIN -- does the work of fn_queue_count and fn_job_lane_open, without the cost of calls
      LOCK TABLE public.queue_counter_recent, public.job_lane IN ROW EXCLUSIVE MODE NOWAIT;
      SELECT r.job_kind, r.event_domain, CASE WHEN r.ready THEN 'queued' ELSE 'scheduled' END,
        EXISTS (SELECT FROM new_rows OFFSET 1),
        r.attempts = 0 AND r.lost_leases = 0 AND r.prior_token IS NULL AND NOT (r.ready AND r.process_after > now()),
        CASE WHEN current_setting('transaction_isolation') = 'serializable'
            THEN r.event_domain ~ '^[a-z][a-z0-9_]{0,50}$' AND r.job_kind ~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$'
            ELSE EXISTS (SELECT FROM public.job_lane l
              WHERE l.event_domain = r.event_domain AND l.job_kind = r.job_kind) END
          AND (SELECT c.relnatts = 6 AND c.relchecks = 0
            AND NOT (c.relhastriggers OR c.relhasrules OR c.relrowsecurity)
            AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid
              AND (i.indkey[0] <> 6 OR i.indnatts <> 1 OR i.indisunique OR i.indpred IS NOT NULL))
            AND NOT EXISTS (SELECT d.scope, d.k1, d.k2, d.k3, d.n FROM public.queue_counter_recent d WHERE false)
          FROM pg_class c WHERE c.oid = 'public.queue_counter_recent'::regclass),
        r.process_after < v_before,
        -- a replay keeps its stored payload, whatever the limit is now; no producer can give a job this key
        CASE WHEN r.idempotency_key IS DISTINCT FROM 'replay:' || r.job_id THEN octet_length(r.payload::text) END,
        jsonb_typeof(r.payload) <> 'object' OR r.payload ?| ARRAY[:denied_keys]
      INTO v_kind, v_domain, v_status, v_several, v_plain, v_direct, v_below, v_bytes, v_content FROM new_rows r
      LIMIT 1; -- plpgsql.extra_errors
    EXCEPTION WHEN OTHERS THEN
      SELECT r.job_kind, r.event_domain, CASE WHEN r.ready THEN 'queued' ELSE 'scheduled' END,
        EXISTS (SELECT FROM new_rows OFFSET 1),
        r.attempts = 0 AND r.lost_leases = 0 AND r.prior_token IS NULL AND NOT (r.ready AND r.process_after > now()),
        false, r.process_after < v_before,
        CASE WHEN r.idempotency_key IS DISTINCT FROM 'replay:' || r.job_id THEN octet_length(r.payload::text) END,
        jsonb_typeof(r.payload) <> 'object' OR r.payload ?| ARRAY[:denied_keys]
      INTO v_kind, v_domain, v_status, v_several, v_plain, v_direct, v_below, v_bytes, v_content FROM new_rows r
      LIMIT 1; -- plpgsql.extra_errors
    END;
    IF v_several THEN
      SELECT count(*), bool_and(r.job_kind = v_kind AND r.event_domain = v_domain AND r.ready = (v_status = 'queued')
          AND r.attempts = 0 AND r.lost_leases = 0 AND r.prior_token IS NULL
          AND NOT (r.ready AND r.process_after > now())),
        max(octet_length(r.payload::text)) FILTER (WHERE r.idempotency_key IS DISTINCT FROM 'replay:' || r.job_id),
        bool_or(jsonb_typeof(r.payload) <> 'object' OR r.payload ?| ARRAY[:denied_keys])
      INTO v_n, v_plain, v_bytes, v_content FROM new_rows r;
    END IF;
    IF v_content THEN
      RAISE EXCEPTION 'payload %', COALESCE((SELECT min(public.fn_denied_key(r.payload)) FROM new_rows r),
        'must be a JSON object') USING ERRCODE = '23514', CONSTRAINT = 'chk_job_payload';
    END IF;
    IF v_bytes > 16384 THEN
      PERFORM public.fn_payload_admit('payload'::text, v_bytes);
    END IF;
    IF v_below OR v_several THEN
      PERFORM public.fn_job_watermark_below(x.event_domain, x.job_kind, x.due) FROM (
        SELECT CASE WHEN r.ready THEN r.event_domain ELSE '' END AS event_domain,
          CASE WHEN r.ready THEN r.job_kind ELSE '' END AS job_kind, min(r.process_after) AS due FROM new_rows r
        WHERE r.process_after < v_before GROUP BY 1, 2) x;
    END IF;
    IF v_plain THEN
      IF v_direct THEN
        INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
        VALUES ('job', v_kind, v_domain, v_status, v_n), ('job_in_5m', v_kind, v_domain, v_five, v_n);
        RETURN NULL;
      END IF;
      PERFORM public.fn_job_lane_open(v_domain, v_kind);
      PERFORM public.fn_queue_count(ARRAY[['job', v_kind, v_domain, v_status, v_n::text],
        ['job_in_5m', v_kind, v_domain, v_five, v_n::text]]);
      RETURN NULL;
    END IF;
    SELECT bool_or(r.attempts <> 0 OR r.lost_leases <> 0 OR r.prior_token IS NOT NULL),
      bool_or(r.ready AND r.process_after > now())
    INTO v_used, v_late FROM new_rows r;
    IF v_used THEN
      RAISE EXCEPTION 'a new job must be queued, without a lease and without attempts'
        USING ERRCODE = '42501', HINT = 'enqueue with fn_job_enqueue';
    ELSIF v_late THEN
      -- the functions set ready correctly; this is for direct INSERTs. The UPDATE fires its own trigger, which counts
      -- it.
      UPDATE public.job_queue q SET ready = false FROM new_rows r
      WHERE q.job_id = r.job_id AND r.ready AND r.process_after > now();
    END IF;
    PERFORM public.fn_job_lane_open(l.event_domain, l.job_kind)
    FROM (SELECT DISTINCT r.event_domain, r.job_kind FROM new_rows r) l;
    PERFORM public.fn_queue_count(array_agg(ARRAY[x.scope, x.job_kind, x.event_domain, x.k3, x.n::text])) FROM (
      WITH a AS MATERIALIZED (
        SELECT job_kind, event_domain, ready, count(*) AS n FROM new_rows GROUP BY 1, 2, 3
      )
      SELECT 'job', job_kind, event_domain, CASE WHEN ready THEN 'queued' ELSE 'scheduled' END, n FROM a
      UNION ALL SELECT 'job_in_5m', job_kind, event_domain, v_five, sum(n) FROM a GROUP BY 1, 2, 3
    ) x (scope, job_kind, event_domain, k3, n);
  ELSIF TG_OP = 'UPDATE' THEN
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    SELECT 'job', x.job_kind, x.event_domain, x.status, sum(x.n) FROM (
      SELECT job_kind, event_domain, CASE WHEN status = 'queued' AND NOT ready THEN 'scheduled' ELSE status
        END AS status,
        -1 AS n FROM old_rows
      UNION ALL
      SELECT job_kind, event_domain, CASE WHEN status = 'queued' AND NOT ready THEN 'scheduled' ELSE status END, 1
        FROM new_rows) x
    GROUP BY 2, 3, 4 HAVING sum(x.n) <> 0;
    IF EXISTS (SELECT FROM new_rows r
      WHERE r.status IN ('queued', 'retry_waiting') AND r.process_after < v_before) THEN
      PERFORM public.fn_job_watermark_below(x.event_domain, x.job_kind, x.due) FROM (
        SELECT CASE WHEN r.ready THEN r.event_domain ELSE '' END AS event_domain,
          CASE WHEN r.ready THEN r.job_kind ELSE '' END AS job_kind, min(r.process_after) AS due FROM new_rows r
        WHERE r.status IN ('queued', 'retry_waiting') AND r.process_after < v_before GROUP BY 1, 2) x;
    END IF;
  ELSE
    GET DIAGNOSTICS v_stack = PG_CONTEXT;
    v_stack := replace(v_stack, '"', ''); -- present if quote_all_identifiers is on
    -- compare whole signatures: the words around them are in the language of the server
    IF NOT (strpos(v_stack, 'fn_job_finish(uuid[],uuid[],text)') > 0
      OR strpos(v_stack, 'fn_job_bury(uuid[],text[],text[],text[],integer)') > 0
      OR strpos(v_stack, 'fn_job_dead_letter_replay_undo_as(uuid[],text,text,boolean,bigint)') > 0) THEN
      RAISE EXCEPTION 'DELETE of job_queue is refused: a job ends through the fn_job_ functions'
        USING ERRCODE = '42501', HINT = 'cancel jobs with fn_job_cancel or qtop job cancel';
    END IF;
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    SELECT 'job', job_kind, event_domain, CASE WHEN status = 'queued' AND NOT ready THEN 'scheduled' ELSE status
      END, -count(*)
    FROM old_rows GROUP BY 1, 2, 3, 4;
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_job_queue_counted IS
  'Trigger: counts job and job_in_5m and opens queue lanes. Refuses a new job that already has attempts or a lease or '
  'whose payload exceeds queue.payload.max_bytes, and removal of a job except by a fn_job_ function. Sets a new job '
  'that is due later to not ready.';

CREATE OR REPLACE TRIGGER trg_job_queue_inserted AFTER INSERT ON public.job_queue
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_queue_counted();
CREATE OR REPLACE TRIGGER trg_job_queue_updated AFTER UPDATE ON public.job_queue
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT
    EXECUTE FUNCTION public.fn_job_queue_counted();
CREATE OR REPLACE TRIGGER trg_job_queue_deleted AFTER DELETE ON public.job_queue
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_queue_counted();

CREATE OR REPLACE FUNCTION public.fn_job_history_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_now bigint := floor(date_part('epoch', now()));
  v_kind text;
  v_domain text;
  v_status text;
  v_n bigint := 1;
  v_several boolean;
  v_alike boolean := true;
BEGIN
  SELECT r.job_kind, r.event_domain, r.status, EXISTS (SELECT FROM new_rows OFFSET 1)
  INTO v_kind, v_domain, v_status, v_several FROM new_rows r LIMIT 1; -- plpgsql.extra_errors
  IF v_several THEN
    SELECT count(*), bool_and(r.job_kind = v_kind AND r.event_domain = v_domain AND r.status = v_status)
      INTO v_n, v_alike FROM new_rows r;
  END IF;
  IF v_kind IS NULL THEN
    RETURN NULL; -- the statement wrote no row
  ELSIF v_alike THEN -- the usual case
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    VALUES ('job', v_kind, v_domain, v_status, v_n),
      ('job_' || v_status || '_10m', v_kind, v_domain, (v_now - v_now % 600)::text, v_n),
      ('job_out_5m', v_kind, v_domain, (v_now - v_now % 300)::text, v_n),
      ('job_done_1m', '', '', (v_now - v_now % 60)::text, v_n);
    RETURN NULL;
  END IF;
  INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
  WITH a AS MATERIALIZED (SELECT job_kind, event_domain, status, count(*) AS n FROM new_rows GROUP BY 1, 2, 3)
  SELECT 'job', job_kind, event_domain, status, n FROM a
  UNION ALL SELECT 'job_' || status || '_10m', job_kind, event_domain, (v_now - v_now % 600)::text, n FROM a
  UNION ALL SELECT 'job_out_5m', job_kind, event_domain, (v_now - v_now % 300)::text, sum(n) FROM a GROUP BY 2, 3
  UNION ALL SELECT 'job_done_1m', '', '', (v_now - v_now % 60)::text, sum(n) FROM a;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_job_history_counted IS
  'Trigger: counters of finished jobs: job, job_<status>_10m, job_out_5m, job_done_1m.';

CREATE OR REPLACE TRIGGER trg_job_history_inserted AFTER INSERT ON public.job_history
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_history_counted();

CREATE OR REPLACE FUNCTION public.fn_job_cleaned_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
  SELECT 'job', job_kind, event_domain, status, sum(n) FROM (
    SELECT job_kind, event_domain, status, -count(*) AS n FROM old_rows GROUP BY 1, 2, 3
    UNION ALL SELECT job_kind, event_domain, status, count(*) FROM new_rows GROUP BY 1, 2, 3) x
  GROUP BY 1, 2, 3, 4 HAVING sum(n) <> 0;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_job_cleaned_counted IS
  'Trigger: counter job, when retention empties finished jobs (status cleaned).';

CREATE OR REPLACE TRIGGER trg_job_history_cleaned AFTER UPDATE ON public.job_history
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT
    EXECUTE FUNCTION public.fn_job_cleaned_counted();

-- fn_job_letter_counted(): trigger of job_dead_letter that writes three counters. dead_job (code, kind, domain) counts
-- open dead letters; dead_job_5m (code, domain/kind, start of the five minutes) counts new ones; dead_1m counts the new
-- dead letters of jobs, webhooks and events together, per minute.
CREATE OR REPLACE FUNCTION public.fn_job_letter_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    SELECT 'dead_job', failure_code, job_kind, event_domain, count(*) FROM new_rows WHERE resolved_at IS NULL
      GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'dead_job_5m', failure_code, event_domain || '/' || job_kind,
      (floor(extract(epoch FROM last_failed_at) / 300) * 300)::bigint::text, count(*) FROM new_rows GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'dead_1m', '', '', (floor(extract(epoch FROM now()) / 60) * 60)::bigint::text, count(*) FROM new_rows
      HAVING count(*) > 0;
  ELSE
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    SELECT 'dead_job', failure_code, job_kind, event_domain, sum(n) FROM (
      SELECT failure_code, job_kind, event_domain, -count(*) AS n FROM old_rows WHERE resolved_at IS NULL
        GROUP BY 1, 2, 3
      UNION ALL
      SELECT failure_code, job_kind, event_domain, count(*) FROM new_rows WHERE resolved_at IS NULL GROUP BY 1, 2, 3) x
    GROUP BY 2, 3, 4 HAVING sum(n) <> 0;
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_job_letter_counted IS
  'Trigger: counters dead_job, dead_job_5m and dead_1m.';

CREATE OR REPLACE TRIGGER trg_job_dead_letter_born AFTER INSERT ON public.job_dead_letter
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_job_letter_counted();
CREATE OR REPLACE TRIGGER trg_job_dead_letter_closed AFTER UPDATE ON public.job_dead_letter
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT
    EXECUTE FUNCTION public.fn_job_letter_counted();
