-- The snapshots of the last 24 hours, and indexes by time for the report of an incident.

CREATE TABLE public.queue_past_picture (
  taken_at timestamptz PRIMARY KEY,
  took_ms  numeric NOT NULL,
  body     text NOT NULL
);

-- A report of an incident reads these tables by time, also what is closed.
CREATE INDEX ix_queue_operator_action_at ON public.queue_operator_action (at);

CREATE INDEX ix_dead_letters_failed ON public.dead_letters (failed_at);

CREATE INDEX ix_job_dead_letter_failed ON public.job_dead_letter (last_failed_at);

---- create above / drop below ----

DROP INDEX public.ix_job_dead_letter_failed;
DROP INDEX public.ix_dead_letters_failed;
DROP INDEX public.ix_queue_operator_action_at;
DROP TABLE public.queue_past_picture;
