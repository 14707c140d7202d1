-- How the sessions of a worker host are known: by what their application_name has in common.

ALTER TABLE public.queue_host ADD COLUMN session_tag text CHECK (session_tag ~ '^[0-9a-f]{8,32}$');

---- create above / drop below ----

ALTER TABLE public.queue_host DROP COLUMN session_tag;
