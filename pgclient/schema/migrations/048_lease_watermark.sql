-- Leases with the transaction that claimed, and which transactions have no live lease: code/job_watermark.sql.

ALTER TABLE public.job_lease ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX ix_job_lease_xid ON public.job_lease (xid);
ALTER TABLE public.job_watermark_state ADD COLUMN lease_below xid8, ADD COLUMN lease_late xid8[];

---- create above / drop below ----

ALTER TABLE public.job_watermark_state DROP COLUMN lease_late, DROP COLUMN lease_below;
ALTER TABLE public.job_lease DROP COLUMN xid;
