-- Up to where recipients have read their events: code/event_subscriptions.sql.

CREATE TABLE public.event_inbox_position (
  recipient_ref text NOT NULL,
  routed_to     text NOT NULL,
  version       bigint GENERATED ALWAYS AS IDENTITY,
  read_after    timestamptz NOT NULL,
  read_until    timestamptz NOT NULL,
  unread        uuid[] NOT NULL,
  PRIMARY KEY (recipient_ref, routed_to, version)
);

---- create above / drop below ----

DROP TABLE public.event_inbox_position;
