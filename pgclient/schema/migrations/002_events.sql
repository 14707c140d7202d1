-- The event outbox, its type registry, and the list of partitioned tables. Sources: DP4 §3.2, §3.5.

-- ---------------------------------------------------------------------------
-- Registry
-- ---------------------------------------------------------------------------
CREATE TABLE public.event_type_registry (
  event_domain  text NOT NULL CHECK (event_domain ~ '^[a-z][a-z0-9_]{0,50}$'),
  event_type    text NOT NULL CHECK (event_type <> ''),
  event_stream  text NOT NULL,
  delivery_lane text NOT NULL CHECK (delivery_lane IN ('immediate', 'delayed')),
  worker_name   text,
  active        boolean NOT NULL DEFAULT true,
  description   text NOT NULL DEFAULT '',
  PRIMARY KEY (event_domain, event_type)
);

-- ---------------------------------------------------------------------------
-- Outbox
-- ---------------------------------------------------------------------------
CREATE TABLE public.event_outbox (
  id                     uuid NOT NULL DEFAULT gen_random_uuid(),
  event_domain           text NOT NULL CHECK (event_domain ~ '^[a-z][a-z0-9_]{0,50}$'),
  event_type             text NOT NULL,
  event_stream           text NOT NULL,
  delivery_lane          text NOT NULL CHECK (delivery_lane IN ('immediate', 'delayed')),
  event_severity         text NOT NULL DEFAULT 'info' CHECK (event_severity IN ('info', 'warning', 'critical')),
  event_subject_table    text,
  event_subject_ref      text,
  canonical_address      text,
  actor_ref              text,
  source_system          text,
  correlation_id         text,
  payload_classification text,
  safe_payload           jsonb NOT NULL DEFAULT '{}'
    CONSTRAINT chk_event_outbox_safe_payload
      CHECK (jsonb_typeof(safe_payload) = 'object' AND NOT safe_payload ?| ARRAY[:denied_keys]),
  occurred_at            timestamptz NOT NULL DEFAULT now(),
  created_at             timestamptz NOT NULL DEFAULT now(),
  created_xid            xid8 NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);

CREATE TABLE public.event_outbox_default PARTITION OF public.event_outbox DEFAULT;

CREATE INDEX ix_event_outbox_cursor ON public.event_outbox (event_domain, created_xid, id);

CREATE INDEX ix_event_outbox_created ON public.event_outbox (created_at);

-- ---------------------------------------------------------------------------
-- Partitions
-- ---------------------------------------------------------------------------
CREATE TABLE public.queue_partitioned (
  parent      text PRIMARY KEY,
  time_column text NOT NULL,
  step        text NOT NULL CHECK (step IN ('day', 'month')),
  ahead       interval NOT NULL
);

---- create above / drop below ----

DROP TABLE public.queue_partitioned;
DROP TABLE public.event_outbox;
DROP TABLE public.event_type_registry;
