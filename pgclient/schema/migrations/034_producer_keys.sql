-- Keys of producers, and the first job of a line of replays. Live jobs keep their key, which any producer may use:
-- who gave it is not known. No row of job_queue is rewritten.

CREATE TYPE public.job_given AS (
  job_id          uuid,
  scope           text,
  job_kind        text,
  event_domain    text,
  executor        text,
  payload         jsonb,
  priority        int,
  process_after   timestamptz,
  idempotency_key text,
  max_attempts    int,
  actor           text
);

CREATE TABLE public.producer_key (
  scope        text COLLATE "C" NOT NULL,
  kind         text COLLATE "C" NOT NULL,
  key          text COLLATE "C" NOT NULL,
  target_id    uuid NOT NULL,
  content_hash bytea NOT NULL,
  status       text,
  final_at     timestamptz,
  PRIMARY KEY (scope, kind, key),
  CONSTRAINT chk_producer_key_final CHECK (num_nonnulls(status, final_at) <> 1)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX ix_producer_key_target ON public.producer_key (target_id);

CREATE INDEX ix_producer_key_final ON public.producer_key (final_at) WHERE final_at IS NOT NULL;

CREATE TABLE public.job_root (
  job_id      uuid PRIMARY KEY,
  root_job_id uuid NOT NULL
);

INSERT INTO public.producer_key (scope, kind, key, target_id, content_hash)
SELECT '', q.job_kind, q.idempotency_key, q.job_id, sha256(convert_to(jsonb_build_array(q.job_kind, q.event_domain,
  q.executor, q.payload)::text, getdatabaseencoding()))
FROM public.job_queue q WHERE q.idempotency_key !~ '^(replay|route):';

---- create above / drop below ----

DROP TABLE public.job_root;
DROP TABLE public.producer_key;
DROP TYPE public.job_given;
