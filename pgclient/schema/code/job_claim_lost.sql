-- Lost claims: the host did not receive the answer of a claim, but the claim may have been committed. Then nobody works
-- on the jobs that it leased.

COMMENT ON COLUMN public.job_lease.claimed_by IS
  'login and application_name of the session that claimed; NULL = claimed by a release that did not record them';

-- fn_job_claim_lost(executor, known tokens) → how many jobs were returned to queued; 0 = the claim was not committed. A
-- worker calls it after a claim that failed without showing whether it was committed, and passes the tokens of all
-- leases that it knows. All other leases that sessions of the same login and application_name hold for the executor are
-- released at once; otherwise their jobs would wait until the leases expire. No attempt is counted, because nobody
-- worked on the jobs. Therefore two workers must not share an executor and an application_name, and the worker must
-- have no other claim under way during the call. The failed claim itself may still be running or not have begun: repeat
-- the call for as long as the server lets its statements run.
CREATE OR REPLACE FUNCTION public.fn_job_claim_lost(p_executor_id text, p_known uuid[]) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT count(*) FILTER (WHERE r.outcome = 'done')
  FROM (SELECT array_agg(j.job_id) AS ids, array_agg(l.lease_token) AS tokens
    FROM public.job_lease l CROSS JOIN LATERAL unnest(l.job_ids) AS j (job_id)
    WHERE l.lease_owner = p_executor_id AND l.lease_token NOT IN (SELECT unnest(p_known))
      AND l.claimed_by = session_user::text || ' '::text || current_setting('application_name')
    HAVING count(*) > 0) x
  CROSS JOIN LATERAL public.fn_job_release(x.ids, x.tokens) r
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_job_claim_lost TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_claim_lost IS
  'Releases the jobs of lost claims: leases of this login and application_name that the caller does not know.';
