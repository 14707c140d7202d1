-- Claims whose answer never arrived: they may have been committed, and nobody works on what they leased.

COMMENT ON COLUMN public.job_lease.claimed_by IS
  'login and application_name of the session that claimed; NULL = claimed before it was recorded';

-- fn_job_claim_lost(executor, known tokens) → how many jobs were handed back. A worker whose claim failed in a way that
-- does not say whether it was committed gives the tokens of all leases that it knows of. What sessions of its own
-- login and application_name have claimed for the executor beside these goes back to queued at once, no attempt spent:
-- nobody works on it, and it would wait until its lease expires. So no two workers may share an executor and an
-- application_name, and no claim of the worker's own may be under way. 0 when nothing was claimed so.
CREATE OR REPLACE FUNCTION public.fn_job_claim_lost(p_executor_id text, p_known uuid[]) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT count(*) FILTER (WHERE r.outcome = 'done')
  FROM (SELECT array_agg(j.job_id) AS ids, array_agg(l.lease_token) AS tokens
    FROM public.job_lease l CROSS JOIN LATERAL unnest(l.job_ids) AS j (job_id)
    WHERE l.lease_owner = p_executor_id AND l.lease_token <> ALL (COALESCE(p_known, '{}'))
      AND l.claimed_by = session_user::text || ' '::text || current_setting('application_name')
    HAVING count(*) > 0) x
  CROSS JOIN LATERAL public.fn_job_release(x.ids, x.tokens) r
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_job_claim_lost TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_claim_lost IS
  'Hands back what sessions of this login and application_name have claimed and do not know of.';
