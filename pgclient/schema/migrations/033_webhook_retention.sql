-- Deletion and erasure of webhook events.

-- The reference from sagas to events is looked up by it for each event that is deleted. Its build waits for the ticks
-- that write sagas, and they for it; producers write events alone.
CREATE INDEX idx_saga_event ON public.webhook_delivery_sagas (event_id);

-- A table of its own, without a reference: a column of events would wait for open producers.
CREATE TABLE public.webhook_erasure (
  event_id  bigint PRIMARY KEY,
  erased_at timestamptz NOT NULL DEFAULT now(),
  erased_by text NOT NULL CHECK (erased_by <> '')
);

---- create above / drop below ----

DROP TABLE public.webhook_erasure;
DROP INDEX public.idx_saga_event;
