-- Heartbeats, acknowledgements of alerts, and worker hosts. Source: DP4 §3.1, §3.4, §3.5.

-- ---------------------------------------------------------------------------
-- Executors
-- ---------------------------------------------------------------------------
CREATE TABLE public.queue_heartbeat (
  executor_id              text PRIMARY KEY CHECK (executor_id <> '' AND length(executor_id) <= 200),
  executor_kind            text NOT NULL CONSTRAINT chk_queue_heartbeat_kind CHECK (executor_kind IN (:executor_kinds)),
  domain_scope             text[] NOT NULL,
  last_beat_at             timestamptz NOT NULL,
  last_beat_payload        jsonb NOT NULL DEFAULT '{}'
    CONSTRAINT chk_queue_heartbeat_payload CHECK (NOT last_beat_payload ?| ARRAY[:denied_keys]),
  expected_cadence_seconds integer NOT NULL CHECK (expected_cadence_seconds > 0),
  stale_threshold_seconds  integer NOT NULL CHECK (stale_threshold_seconds > 0),
  registered_at            timestamptz NOT NULL DEFAULT now(),
  registered_by            text NOT NULL,
  owner_role               text,
  instance_id              text,
  deregistered_at          timestamptz,
  deregistered_by          text,
  tick_worker              boolean NOT NULL DEFAULT false,
  silent_since             timestamptz,
  silent_event_at          timestamptz,
  silent_event_ids         uuid[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE public.queue_alert_ack (
  ack_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  alert_key      text NOT NULL,
  subject        text NOT NULL,
  severity       text NOT NULL CHECK (severity IN ('warning', 'critical')),
  acked_by       text NOT NULL,
  acked_at       timestamptz NOT NULL DEFAULT now(),
  comment        text NOT NULL,
  expires_at     timestamptz NOT NULL,
  cleared_at     timestamptz,
  cleared_reason text CHECK (cleared_reason IN ('expired', 'beat_returned', 'rose_to_critical', 'unacked',
    'deregistered', 'share_fell')),
  CHECK ((cleared_at IS NULL) = (cleared_reason IS NULL))
);

CREATE UNIQUE INDEX ux_queue_alert_ack_open ON public.queue_alert_ack (alert_key) WHERE cleared_at IS NULL;

CREATE INDEX ix_queue_alert_ack_subject ON public.queue_alert_ack (subject, ack_id DESC);

CREATE TABLE public.queue_broadcast_share (
  event_domain  text PRIMARY KEY, -- '' = all domains together
  events_24h    bigint NOT NULL,
  broadcast_24h bigint NOT NULL,
  percent       numeric NOT NULL,
  warn_percent  int NOT NULL,
  sampled_at    timestamptz NOT NULL,
  over_since    timestamptz,
  event_at      timestamptz,
  event_ids     uuid[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

-- ---------------------------------------------------------------------------
-- Worker hosts
-- ---------------------------------------------------------------------------
CREATE TABLE public.queue_host (
  host_id      text PRIMARY KEY CHECK (host_id <> '' AND length(host_id) <= 200),
  instance     uuid NOT NULL,
  started_at   timestamptz NOT NULL DEFAULT now(),
  last_seen_at timestamptz NOT NULL DEFAULT now(),
  stopped_at   timestamptz,
  version      text NOT NULL DEFAULT '',
  loops        text[] NOT NULL DEFAULT '{}',
  in_flight    int NOT NULL DEFAULT 0,
  progress     jsonb NOT NULL DEFAULT '{}',
  db_role      text NOT NULL DEFAULT session_user,
  client_addr  inet DEFAULT inet_client_addr()
) WITH (fillfactor = 50);

---- create above / drop below ----

DROP TABLE public.queue_host;
DROP TABLE public.queue_alert_ack;
DROP TABLE public.queue_broadcast_share;
DROP TABLE public.queue_heartbeat;
