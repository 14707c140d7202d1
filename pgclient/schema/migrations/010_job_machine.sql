-- The row type that fn_job_claim works with.

-- A lane that may have work for a claim: its rule (room: the places that are free under it), the lease it would be,
-- the priority of its next job, of which executor kind, what else the claim must know, and where the caller stopped.
CREATE TYPE public.job_claim_lane AS (event_domain text, job_kind text, subscription_id uuid, floor int, room int,
  token uuid, head int, executor text, owner_role text, lease_secs text, after_priority int, after_time timestamptz,
  after_id uuid);

---- create above / drop below ----

DROP TYPE public.job_claim_lane;
