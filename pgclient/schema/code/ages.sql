-- fn_age(time) → seconds from that time to now(); NULL of NULL. A time before year 1 counts as the first day of year 1,
-- and a time after year 9999 as the last day of year 9999: subtracting an infinite time would be an error.
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
  'Seconds from a time to now(). A time before year 1 or after year 9999, also infinity, counts as one in these years.';
