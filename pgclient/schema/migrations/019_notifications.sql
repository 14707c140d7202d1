-- Information units and their notifications, with the staging outbox. Source: P3D4C1 §2, §3, §5.

-- ---------------------------------------------------------------------------
-- Units
-- ---------------------------------------------------------------------------
CREATE TABLE public.information_unit (
  id                  uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  canonical_address   text NOT NULL UNIQUE CHECK (canonical_address <> ''),
  source_document_ref text,
  import_batch_ref    text,
  created_by          text NOT NULL CHECK (created_by <> ''),
  created_at          timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE public.unit_version (
  id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  unit_id     uuid NOT NULL REFERENCES public.information_unit (id),
  version_seq int NOT NULL CHECK (version_seq > 0),
  body        text NOT NULL,
  created_by  text NOT NULL CHECK (created_by <> ''),
  created_at  timestamptz NOT NULL DEFAULT now(),
  UNIQUE (unit_id, version_seq)
);

CREATE TABLE public.iu_comment (
  id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  unit_id    uuid NOT NULL REFERENCES public.information_unit (id),
  body       text NOT NULL,
  created_by text NOT NULL CHECK (created_by <> ''),
  created_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX ix_iu_comment_unit ON public.iu_comment (unit_id, created_at);

CREATE TABLE public.iu_draft (
  id                 uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  unit_id            uuid NOT NULL REFERENCES public.information_unit (id),
  body               text NOT NULL,
  created_by         text NOT NULL CHECK (created_by <> ''),
  created_at         timestamptz NOT NULL DEFAULT now(),
  applied_version_id uuid REFERENCES public.unit_version (id),
  applied_at         timestamptz,
  CHECK ((applied_version_id IS NULL) = (applied_at IS NULL))
);

CREATE INDEX ix_iu_draft_unit ON public.iu_draft (unit_id, created_at);

-- ---------------------------------------------------------------------------
-- Notifications
-- ---------------------------------------------------------------------------
CREATE TABLE public.iu_notification_event (
  id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  event_type        text NOT NULL,
  event_stream      text NOT NULL,
  unit_id           uuid NOT NULL,
  canonical_address text NOT NULL CHECK (canonical_address <> ''),
  ref_id            uuid NOT NULL,
  actor_ref         text NOT NULL CHECK (actor_ref <> ''),
  source            text NOT NULL CHECK (source <> ''),
  payload           jsonb NOT NULL DEFAULT '{}'
    CONSTRAINT chk_notif_event_payload CHECK (jsonb_typeof(payload) = 'object' AND NOT payload ?| ARRAY[:denied_keys]),
  created_at        timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT chk_notif_event_type CHECK (
    event_type IN ('comment_added', 'draft_created', 'version_applied', 'new_piece_created', 'document_imported')),
  CONSTRAINT chk_notif_event_type_stream CHECK (
    (event_type = 'comment_added' AND event_stream = 'comment') OR
    (event_type = 'draft_created' AND event_stream = 'review') OR
    (event_type = 'version_applied' AND event_stream = 'update') OR
    (event_type = 'new_piece_created' AND event_stream = 'update') OR
    (event_type = 'document_imported' AND event_stream = 'update')),
  UNIQUE (event_type, ref_id)
);

CREATE INDEX ix_iu_notification_event_created ON public.iu_notification_event (created_at DESC, id);

CREATE TABLE public.iu_notification_read (
  event_id   uuid NOT NULL REFERENCES public.iu_notification_event (id),
  reader_ref text NOT NULL CHECK (reader_ref <> ''),
  read_at    timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (event_id, reader_ref)
);

CREATE TABLE public.iu_notification_pending (
  id                  uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  event_kind          text NOT NULL DEFAULT 'piece_birth',
  unit_id             uuid NOT NULL,
  canonical_address   text NOT NULL,
  source_document_ref text,
  import_batch_ref    text,
  actor_ref           text NOT NULL,
  ref_id              uuid NOT NULL,
  created_at          timestamptz NOT NULL DEFAULT now(),
  processed_at        timestamptz,
  failed_at           timestamptz,
  failure             text,
  CONSTRAINT chk_notif_pending_failure CHECK ((failed_at IS NULL) = (failure IS NULL)
    AND (failed_at IS NULL OR processed_at IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX idx_notif_pending_unprocessed ON public.iu_notification_pending (created_at)
  WHERE processed_at IS NULL;

CREATE INDEX idx_notif_pending_stable_key ON public.iu_notification_pending (source_document_ref, import_batch_ref)
  WHERE processed_at IS NULL;

CREATE INDEX ix_notif_pending_processed ON public.iu_notification_pending (processed_at) WHERE processed_at IS NOT NULL;

CREATE INDEX ix_notif_pending_failed ON public.iu_notification_pending (failed_at) WHERE failed_at IS NOT NULL;

CREATE TABLE public.iu_notification_worker_log (
  id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  run_at            timestamptz NOT NULL DEFAULT now(),
  pending_pre       int NOT NULL DEFAULT 0,
  pending_post      int NOT NULL DEFAULT 0,
  groups_emitted    int NOT NULL DEFAULT 0,
  pieces_emitted    int NOT NULL DEFAULT 0,
  conflicts_skipped int NOT NULL DEFAULT 0,
  rows_marked       int NOT NULL DEFAULT 0,
  duration_ms       numeric,
  error_count       int NOT NULL DEFAULT 0,
  error_text        text,
  failed_total      int NOT NULL DEFAULT 0
);

CREATE INDEX ix_iu_notification_worker_log_run ON public.iu_notification_worker_log (run_at DESC);

---- create above / drop below ----

DROP TABLE public.iu_notification_worker_log;
DROP TABLE public.iu_notification_pending;
DROP TABLE public.iu_notification_read;
DROP TABLE public.iu_notification_event;
DROP TABLE public.iu_draft;
DROP TABLE public.iu_comment;
DROP TABLE public.unit_version;
DROP TABLE public.information_unit;
