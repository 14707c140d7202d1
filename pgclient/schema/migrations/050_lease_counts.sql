-- How many jobs each job subscription had leased when its leases were last read: code/job_watermark.sql.

CREATE TABLE public.job_lease_count (
  version         bigint NOT NULL,
  subscription_id uuid NOT NULL,
  live            bigint NOT NULL,
  xids            xid8[],
  PRIMARY KEY (version, subscription_id)
);
ALTER TABLE public.job_watermark_state ADD COLUMN lease_seen xid8, ADD COLUMN lease_open xid8[];

---- create above / drop below ----

ALTER TABLE public.job_watermark_state DROP COLUMN lease_open, DROP COLUMN lease_seen;
DROP TABLE public.job_lease_count;
