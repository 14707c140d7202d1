-- Objects that programs of this release no longer use; they stay for running programs of the previous release. The next
-- release drops them and names them in release.txt.

-- Retired by code 1: v_queue_health without some of its rows; programs read v_queue_health instead.
CREATE OR REPLACE VIEW public.v_queue_health_rest AS
SELECT * FROM public.v_queue_health h
WHERE h.source NOT LIKE 'dead\_letter\_%' AND h.source NOT LIKE 'backlog\_%'
  AND NOT (h.source = 'cursor_held' AND h.subject <> 'webhook_router');
COMMENT ON VIEW public.v_queue_health_rest IS
  'Retired: v_queue_health without backlogs, dead letters and held routes. Read v_queue_health.';
GRANT SELECT ON public.v_queue_health_rest TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

-- Retired by code 1: the former name of fn_job_dead_letters_open.
CREATE OR REPLACE FUNCTION public.fn_job_letters_open()
  RETURNS TABLE (event_domain text, failure_code text, job_kind text, open bigint,
  first_at timestamptz, last_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT o.event_domain, o.failure_code, o.job_kind, o.open, o.first_at, o.last_at
  FROM public.fn_job_dead_letters_open() o
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_job_letters_open TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_job_letters_open IS
  'Retired: the former name of fn_job_dead_letters_open.';

-- fn_dot_config_waits(flag, base flag, its default, cap flag, its default): replaces the two flags base and cap, from
-- which older releases computed the waits, by the equal list of waits in the new flag. The new flag still records the
-- operator who set them; base and cap are deleted. The seeds call it once.
CREATE OR REPLACE FUNCTION public.fn_dot_config_waits(p_key text, p_base text, p_base_default text, p_cap text,
  p_cap_default text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  INSERT INTO public.dot_config (key, value, description, updated_at, updated_by)
  SELECT p_key, w.list, 'how long to wait after each failed attempt', greatest(b.updated_at, c.updated_at),
    CASE WHEN c.updated_at > b.updated_at THEN c.updated_by ELSE b.updated_by END
  FROM public.dot_config b JOIN public.dot_config c ON c.key = p_cap
  CROSS JOIN LATERAL (
    SELECT string_agg(least(c.value::bigint, b.value::bigint * 2 ^ n)::bigint || 's', ' ' ORDER BY n) AS list
    FROM generate_series(0, 19) n WHERE n = 0 OR b.value::bigint * 2 ^ (n - 1) < c.value::bigint) w
  WHERE b.key = p_base AND (b.value, c.value) <> (p_base_default, p_cap_default)
    AND b.value ~ '^[0-9]{1,6}$' AND c.value ~ '^[0-9]{1,6}$';
  DELETE FROM public.dot_config_revert WHERE key IN (p_base, p_cap);
  DELETE FROM public.dot_config WHERE key IN (p_base, p_cap);
  DELETE FROM public.dot_config_rule WHERE key IN (p_base, p_cap);
END
$fn$;
COMMENT ON FUNCTION public.fn_dot_config_waits IS
  'Turns the base and cap of a retry schedule of the previous release into its list. For seeds.';
