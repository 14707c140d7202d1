-- Rows that made a step fail: set aside, so that everything else goes on.

CREATE TABLE public.queue_quarantine (
  quarantine_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  step            text NOT NULL CHECK (step ~ '^[a-z_]{1,60}$'),
  target          text NOT NULL CHECK (length(target) BETWEEN 1 AND 2000),
  attempts        int NOT NULL DEFAULT 1 CHECK (attempts >= 0),
  code            text NOT NULL CHECK (code ~ '^[0-9A-Z]{5}$'),
  error           text NOT NULL CHECK (length(error) <= 1000),
  first_failed_at timestamptz NOT NULL DEFAULT now(),
  last_failed_at  timestamptz NOT NULL DEFAULT now(),
  next_try_at     timestamptz NOT NULL,
  set_aside_at    timestamptz,
  UNIQUE (step, target)
);
CREATE INDEX ix_queue_quarantine_due ON public.queue_quarantine (step, next_try_at) WHERE set_aside_at IS NULL;
CREATE INDEX ix_queue_quarantine_aside ON public.queue_quarantine (step, set_aside_at)
  WHERE set_aside_at IS NOT NULL;

CREATE TABLE public.queue_step_pending (
  pending_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  step       text NOT NULL,
  targets    text[] NOT NULL,
  chunk      int NOT NULL CHECK (chunk > 0),
  since      timestamptz NOT NULL DEFAULT now()
);

---- create above / drop below ----

DROP TABLE public.queue_step_pending;
DROP TABLE public.queue_quarantine;
