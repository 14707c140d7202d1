-- From when the silence of a tick worker counts, where that is later than its last beat.

ALTER TABLE public.queue_heartbeat ADD COLUMN counted_from timestamptz;

---- create above / drop below ----

ALTER TABLE public.queue_heartbeat DROP COLUMN counted_from;
