-- How old a time is, whatever time somebody wrote.

-- fn_age(time) → seconds from it to now(), NULL of NULL. What no calendar holds counts as the first or the last day
-- that one does: subtracting an infinite time is an error.
CREATE OR REPLACE FUNCTION public.fn_age(p_at timestamptz) RETURNS numeric
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN extract(epoch FROM now() - CASE WHEN p_at < '0001-01-01Z' THEN '0001-01-01Z'::timestamptz
    WHEN p_at > '9999-12-31Z' THEN '9999-12-31Z'::timestamptz ELSE p_at END);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_age TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator",
  :"dot_executor", :"subscription_admin", :"saga_orchestrator", :"webhook_worker", :"router_worker",
  :"lease_reset_cleaner";
COMMENT ON FUNCTION public.fn_age IS
  'Seconds since a time, also since one that no calendar holds: BC, after year 9999, infinite.';
