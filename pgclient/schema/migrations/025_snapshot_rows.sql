-- The row type in which the lanes of the jobs are handed to the sections of the picture.

-- Its columns are the keys of the section queues. What is of one width comes first: the way to a column behind a text
-- or a NULL is walked anew for each.
CREATE TYPE public.snapshot_lane AS (queued bigint, scheduled bigint, leased bigint, in_progress bigint,
  retry_waiting bigint, age_seconds bigint, in_per_s float8, out_per_s float8, succeeded_1h bigint, failed_1h bigint,
  dead_1h bigint, cancelled_1h bigint, oldest_at timestamptz, newest_at timestamptz, clears_in_seconds bigint,
  job_kind text, event_domain text, executor text, why text);

---- create above / drop below ----

DROP TYPE public.snapshot_lane;
