-- Consumers of events. Source: DP6 §3.4.

CREATE TABLE public.consumer_registry (
  consumer_id   text PRIMARY KEY CHECK (consumer_id ~ '^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,99}$'),
  event_domain  text NOT NULL,
  event_type    text NOT NULL,
  job_kind      text NOT NULL CHECK (job_kind ~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$'),
  executor      text NOT NULL CONSTRAINT chk_consumer_registry_executor CHECK (executor IN (:executor_kinds)),
  enabled       boolean NOT NULL DEFAULT false,
  registered_by text NOT NULL CHECK (registered_by <> ''),
  registered_at timestamptz NOT NULL DEFAULT now(),
  updated_by    text NOT NULL CHECK (updated_by <> ''),
  updated_at    timestamptz NOT NULL DEFAULT now(),
  FOREIGN KEY (event_domain, event_type) REFERENCES public.event_type_registry ON DELETE RESTRICT
);

CREATE INDEX ix_consumer_registry_lookup ON public.consumer_registry (event_domain, event_type) WHERE enabled;

---- create above / drop below ----

DROP TABLE public.consumer_registry;
