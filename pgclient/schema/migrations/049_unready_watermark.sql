-- From when on jobs are due that are not claimable yet: code/job_watermark.sql.

ALTER TABLE public.job_watermark_state ADD COLUMN unready_due timestamptz;

---- create above / drop below ----

ALTER TABLE public.job_watermark_state DROP COLUMN unready_due;
