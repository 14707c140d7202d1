-- Indexes for the retention sweep.

CREATE INDEX ix_job_dead_letter_resolved ON public.job_dead_letter (resolved_at) WHERE resolved_at IS NOT NULL;

CREATE INDEX ix_iu_route_dead_letter_resolved ON public.iu_route_dead_letter (resolved_at)
  WHERE resolved_at IS NOT NULL;

-- BRIN: attempts are written in the order of time, and each costs next to nothing.
CREATE INDEX ix_iu_route_attempt_at ON public.iu_route_attempt USING brin (attempted_at) WITH (autosummarize = on);

---- create above / drop below ----

DROP INDEX public.ix_iu_route_attempt_at;
DROP INDEX public.ix_iu_route_dead_letter_resolved;
DROP INDEX public.ix_job_dead_letter_resolved;
