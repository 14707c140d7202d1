-- The broadcast share and what recipients have read. Source: DP6 §1.4, §3.2, §8.

-- ---------------------------------------------------------------------------
-- The broadcast share. What resolution depends on, and nothing else of an event, makes its class: domain, type,
-- stream, subject table, and which of the scope filters its payload contains. Events are counted per class, minute
-- and hour, once they are older than every open transaction of this database; who reads a class is looked up in the
-- rules of today. Exact are then: whole hours, the minutes of the hour at which the window begins, the events of the
-- minute at which it begins, and those that are not counted yet.
-- ---------------------------------------------------------------------------
CREATE TABLE public.event_class (
  class_id            int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  class_key           text NOT NULL UNIQUE, -- of the columns below; they may be too long for an index
  event_domain        text NOT NULL,
  event_type          text NOT NULL,
  event_stream        text NOT NULL,
  event_subject_table text,
  filters             jsonb[] NOT NULL,
  seen_at             timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE public.event_class_count (
  span     text NOT NULL CHECK (span IN ('minute', 'hour')),
  bucket   timestamptz NOT NULL,
  class_id int NOT NULL,
  n        bigint NOT NULL,
  PRIMARY KEY (span, bucket, class_id)
) WITH (fillfactor = 70);

CREATE TABLE public.event_class_state (
  one               boolean PRIMARY KEY DEFAULT true CHECK (one),
  rolled_xid        xid8 NOT NULL DEFAULT '0', -- what is older is counted
  known_filters     jsonb[] NOT NULL DEFAULT '{}', -- those that filters of event_class tell of
  system_identifier bigint NOT NULL,
  -- what was created until then came with a restore: counted, whatever its xid
  restored_at       timestamptz NOT NULL DEFAULT '-infinity',
  rolled_at         timestamptz
);

-- ---------------------------------------------------------------------------
-- What recipients have read
-- ---------------------------------------------------------------------------
CREATE TABLE public.event_read (
  event_id      uuid NOT NULL,
  recipient_ref text NOT NULL CONSTRAINT chk_event_read_recipient
    CHECK (recipient_ref ~ '^(role|agency|user|agent):.+'),
  read_at       timestamptz NOT NULL DEFAULT now(),
  read_by       text NOT NULL DEFAULT session_user,
  PRIMARY KEY (event_id, recipient_ref)
);

CREATE INDEX ix_event_read_at ON public.event_read (read_at);

---- create above / drop below ----

DROP TABLE public.event_read;
DROP TABLE public.event_class_state;
DROP TABLE public.event_class_count;
DROP TABLE public.event_class;
