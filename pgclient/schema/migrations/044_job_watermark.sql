-- Where look-ups in the job queue begin while an old snapshot keeps dead rows: code/job_watermark.sql.

CREATE TABLE public.job_watermark_state (
  version bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL,
  seen_at timestamptz,
  seen    pg_snapshot,
  late    xid8[] NOT NULL DEFAULT '{}',
  valid   boolean NOT NULL DEFAULT false,
  swept_at timestamptz
);

CREATE TABLE public.job_watermark (
  event_domain text COLLATE "C" NOT NULL,
  job_kind     text COLLATE "C" NOT NULL,
  version      bigint NOT NULL,
  due          timestamptz NOT NULL,
  priority     int NOT NULL,
  PRIMARY KEY (event_domain, job_kind, version)
);

-- Without a unique index: producers must not wait for each other.
CREATE TABLE public.job_watermark_below (
  event_domain text COLLATE "C" NOT NULL,
  job_kind     text COLLATE "C" NOT NULL,
  due          timestamptz NOT NULL
);
CREATE INDEX ix_job_watermark_below ON public.job_watermark_below (event_domain, job_kind);

INSERT INTO public.dot_iu_runtime_lease (lease_name) VALUES ('job_watermark');

-- No function that uses the type runs before the functions are installed again, in this transaction.
ALTER TYPE public.job_claim_lane ADD ATTRIBUTE due timestamptz;

---- create above / drop below ----

ALTER TYPE public.job_claim_lane DROP ATTRIBUTE due;
DELETE FROM public.dot_iu_runtime_lease WHERE lease_name = 'job_watermark';
DROP TABLE public.job_watermark_below;
DROP TABLE public.job_watermark;
DROP TABLE public.job_watermark_state;
