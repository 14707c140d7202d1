-- Events that qtop alone emits: the id of the one that a function of qtop is about to write. The trigger of
-- event_outbox takes it back, so the table is empty between two statements. A trigger of its own would make an upgrade
-- wait for producers.

CREATE TABLE public.event_own (id uuid PRIMARY KEY);

---- create above / drop below ----

DROP TABLE public.event_own;
