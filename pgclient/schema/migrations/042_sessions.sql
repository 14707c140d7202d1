-- How the sessions of a worker host are known: by what their application_name has in common; and which of them a lease
-- was given to.

ALTER TABLE public.queue_host ADD COLUMN session_tag text CHECK (session_tag ~ '^[0-9a-f]{8,32}$');

ALTER TABLE public.job_lease ADD COLUMN claimed_by text;
ALTER TABLE public.job_lease ALTER COLUMN claimed_by
  SET DEFAULT session_user::text || ' '::text || pg_catalog.current_setting('application_name'::text);

---- create above / drop below ----

ALTER TABLE public.job_lease DROP COLUMN claimed_by;
ALTER TABLE public.queue_host DROP COLUMN session_tag;
