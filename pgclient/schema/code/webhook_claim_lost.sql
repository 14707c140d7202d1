-- Lost claims of webhook deliveries: the host did not receive the answer of a claim, but the claim may have been
-- committed. Then nobody sends the deliveries that it leased.

-- fn_webhook_claim_lost(worker_id, known tokens) → how many jobs were returned to Pending; 0 = the claim was not
-- committed. A worker calls it after a claim that failed without showing whether it was committed, and passes the
-- tokens of all leases that it knows. All other leases under its worker_id are released at once, and no attempt is
-- counted; otherwise the deliveries would wait until the leases expire. The worker must have no other claim under way
-- during the call. A claim without an answer may be committed only after the call: repeat the call for a minute.
-- The worker_id must be that of a registered worker host of the caller's login (host id/first 8 digits
-- of its instance); otherwise nothing is released.
CREATE OR REPLACE FUNCTION public.fn_webhook_claim_lost(p_worker_id text, p_known uuid[]) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
  SELECT count(*) FILTER (WHERE r.outcome = 'done')
  FROM (SELECT array_agg(j.id) AS ids, array_agg(j.lease_token) AS tokens
    FROM public.webhook_delivery_jobs j
    WHERE j.status = 'Leased' AND j.worker_id = p_worker_id AND j.lease_token NOT IN (SELECT unnest(p_known))
      AND EXISTS (SELECT FROM public.queue_host q WHERE q.db_role = session_user
        AND q.host_id || '/'::text || left(q.instance::text, 8) = p_worker_id)
    HAVING count(*) > 0) x
  CROSS JOIN LATERAL public.fn_webhook_job_release(x.ids, x.tokens) r
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_webhook_claim_lost TO :"webhook_worker";
COMMENT ON FUNCTION public.fn_webhook_claim_lost IS
  'Releases the deliveries of lost claims: leases of this worker host that the caller does not know.';
