-- Three indexes of webhook jobs get conditions that a statement fulfils only by repeating them. If no job waited when
-- the table was last analyzed, the planner expects one row from each index whose condition a statement fulfils, and may
-- take any: the jobs of one webhook subscription or operation, and expired leases, were searched among all that wait.

DROP INDEX public.idx_job_free;
CREATE INDEX idx_job_free ON public.webhook_delivery_jobs (id)
  WHERE status = 'Pending' AND NOT controlled AND id + 0 > 0;
DROP INDEX public.idx_job_operation;
CREATE INDEX idx_job_operation ON public.webhook_delivery_jobs (operation_id, id)
  WHERE CASE status WHEN 'Pending' THEN true ELSE false END AND operation_id IS NOT NULL;
-- only for its uniqueness
DROP INDEX public.uniq_job_active;
CREATE UNIQUE INDEX uniq_job_active ON public.webhook_delivery_jobs (saga_id)
  WHERE CASE WHEN status IN ('Pending', 'Leased') THEN true ELSE false END;

---- create above / drop below ----

DROP INDEX public.uniq_job_active;
CREATE UNIQUE INDEX uniq_job_active ON public.webhook_delivery_jobs (saga_id)
  WHERE status IN ('Pending', 'Leased');
DROP INDEX public.idx_job_operation;
CREATE INDEX idx_job_operation ON public.webhook_delivery_jobs (operation_id, id)
  WHERE status = 'Pending' AND operation_id IS NOT NULL;
DROP INDEX public.idx_job_free;
CREATE INDEX idx_job_free ON public.webhook_delivery_jobs (id) WHERE status = 'Pending' AND NOT controlled;
