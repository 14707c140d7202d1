-- VACUUM does not give the pages of this table back, for the same reason as in migration 047: a job that becomes
-- claimable below the watermark of its queue lane could not be noted, and would be claimed up to a minute late.

ALTER TABLE public.job_watermark_below SET (vacuum_truncate = off);

---- create above / drop below ----

ALTER TABLE public.job_watermark_below RESET (vacuum_truncate);
