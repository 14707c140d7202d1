-- Where each reader of events stands, between two snapshots: a transaction that stays open delays its own events alone.

-- A table of its own: an upgrade must not wait for open transactions that write to the earlier ones. A reader that has
-- no row here continues from where it stood there (fn_routing_cursor).
CREATE TABLE public.queue_cursor (
  worker_name  text NOT NULL,
  event_domain text NOT NULL,
  routed       pg_snapshot NOT NULL,
  batch        pg_snapshot,
  batch_xid    xid8,
  batch_id     text,
  PRIMARY KEY (worker_name, event_domain),
  CHECK (num_nulls(batch, batch_xid, batch_id) IN (0, 3))
) WITH (fillfactor = 50);

---- create above / drop below ----

DROP TABLE public.queue_cursor;
