-- Event routing: subscriptions, routes, cursors, attempts and dead letters. Sources: DP6 §3.1, DP1 §2, DP4 §3.3.

CREATE TABLE public.event_subscription (
  subscription_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  recipient_ref       text NOT NULL CONSTRAINT chk_event_subscription_recipient
    CHECK (recipient_ref ~ '^(role|agency|user|agent):.+'),
  event_domain        text,
  event_type          text,
  event_stream        text,
  scope_subject_table text,
  scope_filter        jsonb NOT NULL DEFAULT '{}',
  mute                boolean NOT NULL DEFAULT false,
  UNIQUE NULLS NOT DISTINCT (recipient_ref, event_domain, event_type, event_stream, scope_subject_table, scope_filter)
);

CREATE INDEX ix_event_subscription_lookup ON public.event_subscription (event_domain, event_type, event_stream)
  WHERE mute = false;

-- One route per domain that has an event type: which worker takes its events, and whether it does. Between the master
-- switch, which is for all of them, and a muted subscription, which is for one reader.
CREATE TABLE public.iu_outbound_route (
  event_domain text PRIMARY KEY CHECK (event_domain ~ '^[a-z][a-z0-9_]{0,50}$'),
  worker_name  text NOT NULL CHECK (worker_name IN ('iu_outbound_default', 'staging_outbound')),
  enabled      boolean NOT NULL DEFAULT true,
  updated_at   timestamptz NOT NULL DEFAULT now(),
  updated_by   text NOT NULL DEFAULT 'migration'
);

-- restored_*: the events that were there when the worker first met this database, or found it restored into another
-- cluster, bear transaction numbers that say nothing here. They are gone through by id, behind restored_after, and
-- what was routed is told by its attempts. Whatever was not visible then has a number from restored_xid on.
CREATE TABLE public.iu_route_worker_cursor (
  worker_name       text NOT NULL,
  event_domain      text NOT NULL,
  last_run_at       timestamptz,
  events_seen       bigint NOT NULL DEFAULT 0,
  attempts_written  bigint NOT NULL DEFAULT 0,
  dead_lettered     bigint NOT NULL DEFAULT 0,
  cursor_xid        xid8 NOT NULL DEFAULT '0',
  cursor_id         uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
  system_identifier bigint NOT NULL DEFAULT 0,
  restored_at       timestamptz NOT NULL DEFAULT now(),
  restored_xid      xid8 NOT NULL DEFAULT '0',
  restored_after    uuid,
  last_run_summary  jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY (worker_name, event_domain)
) WITH (fillfactor = 50);

CREATE TABLE public.iu_route_attempt (
  event_id      uuid NOT NULL,
  recipient_ref text NOT NULL,
  step          int NOT NULL CHECK (step BETWEEN 1 AND 5),
  event_domain  text NOT NULL,
  event_type    text NOT NULL,
  worker_name   text NOT NULL,
  attempted_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (event_id, recipient_ref)
);

CREATE INDEX ix_iu_route_attempt_recipient ON public.iu_route_attempt (recipient_ref, attempted_at DESC);

CREATE TABLE public.iu_route_dead_letter (
  dead_letter_id  uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  event_id        uuid NOT NULL,
  event_snapshot  jsonb NOT NULL,
  event_type      text NOT NULL GENERATED ALWAYS AS (COALESCE(event_snapshot ->> 'event_type', '')) STORED,
  idempotency_key text NOT NULL UNIQUE,
  failure_code    text NOT NULL,
  last_error      text NOT NULL,
  event_domain    text NOT NULL,
  worker_name     text NOT NULL,
  last_failed_at  timestamptz NOT NULL DEFAULT now(),
  resolved_at     timestamptz,
  resolved_by     text,
  resolution      text,
  note            text,
  CHECK ((resolved_at IS NULL) = (resolution IS NULL))
);

CREATE INDEX ix_iu_route_dead_letter_open ON public.iu_route_dead_letter (event_domain, failure_code, event_type,
  last_failed_at)
  WHERE resolved_at IS NULL;

CREATE INDEX ix_iu_route_dead_letter_newest ON public.iu_route_dead_letter (last_failed_at DESC, dead_letter_id DESC);

CREATE INDEX ix_iu_route_dead_letter_event ON public.iu_route_dead_letter (event_id);

---- create above / drop below ----

DROP TABLE public.iu_route_dead_letter;
DROP TABLE public.iu_route_attempt;
DROP TABLE public.iu_route_worker_cursor;
DROP TABLE public.iu_outbound_route;
DROP TABLE public.event_subscription;
