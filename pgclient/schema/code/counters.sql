-- Delta counters: statement triggers append, counter_compactor folds them, readers add both.

COMMENT ON TABLE public.queue_counter IS
  'Folded counts by scope; k3 of the scopes ending in m is the epoch of the bucket.';
COMMENT ON COLUMN public.queue_counter.scope IS
  'which counter; what k1 to k3 mean stands beside the trigger that writes it';
GRANT SELECT ON public.queue_counter, public.queue_counter_delta, public.v_queue_counter_part,
  public.v_queue_counter TO :"queue_viewer";

COMMENT ON TABLE public.queue_counter_delta IS
  'Counts not folded yet, one row per statement and key.';

CREATE OR REPLACE VIEW public.v_queue_counter_part AS
  SELECT scope, k1, k2, k3, n FROM public.queue_counter
  UNION ALL SELECT scope, k1, k2, k3, n FROM public.queue_counter_delta;
COMMENT ON VIEW public.v_queue_counter_part IS
  'What v_queue_counter adds up: for who sums over keys anyway.';

CREATE OR REPLACE VIEW public.v_queue_counter AS
  SELECT scope, k1, k2, k3, sum(n)::bigint AS n FROM public.v_queue_counter_part GROUP BY scope, k1, k2, k3;
COMMENT ON VIEW public.v_queue_counter IS 'Exact counts: folded ones plus the deltas since.';

-- fn_queue_counter_compact() → {folded, pruned}: the counter_compactor tick.
CREATE OR REPLACE FUNCTION public.fn_queue_counter_compact() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_folded bigint;
  v_pruned bigint;
BEGIN
  WITH gone AS (
    DELETE FROM public.queue_counter_delta RETURNING scope, k1, k2, k3, n
  ), sums AS (
    SELECT scope, k1, k2, k3, sum(n) AS n, count(*) AS c FROM gone GROUP BY scope, k1, k2, k3
  ), put AS (
    INSERT INTO public.queue_counter AS q (scope, k1, k2, k3, n)
    SELECT scope, k1, k2, k3, n FROM sums WHERE n <> 0 ORDER BY scope, k1, k2, k3
    ON CONFLICT (scope, k1, k2, k3) DO UPDATE SET n = q.n + excluded.n
  )
  SELECT COALESCE(sum(c), 0) INTO v_folded FROM sums;
  DELETE FROM public.queue_counter
  WHERE scope ~ '_[0-9]+m$' AND k3 ~ '^[0-9]+$' AND k3::bigint < extract(epoch FROM now())::bigint - 7200;
  GET DIAGNOSTICS v_pruned = ROW_COUNT;
  RETURN jsonb_build_object('folded', v_folded, 'pruned', v_pruned);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_counter_compact TO :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_counter_compact IS
  'Tick counter_compactor: folds counter deltas and drops time buckets older than two hours.';
