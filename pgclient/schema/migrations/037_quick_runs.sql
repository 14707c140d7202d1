-- What runs many times a second must not read through what earlier runs left: while a transaction is open somewhere, no
-- version of a row is removed. So the newest version of a cursor is the first that its index names.
ALTER TABLE public.queue_cursor
  ADD COLUMN version bigint NOT NULL DEFAULT 1,
  ADD COLUMN uncounted jsonb NOT NULL DEFAULT '{}',
  DROP CONSTRAINT queue_cursor_pkey,
  ADD PRIMARY KEY (worker_name, event_domain, version);

---- create above / drop below ----

ALTER TABLE public.queue_cursor
  DROP CONSTRAINT queue_cursor_pkey,
  ADD PRIMARY KEY (worker_name, event_domain),
  DROP COLUMN version,
  DROP COLUMN uncounted;
