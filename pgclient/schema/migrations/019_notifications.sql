-- Information units and their notifications: the tables, the staging outbox with its O(1) birth hook, and the
-- gateways through which units are written. Source: P3D4C1 §2, §3 and §5; the worker is in the next migration.
SET LOCAL ROLE queue_owner;

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
COMMENT ON TABLE public.information_unit IS 'Pieces of information by address; their text is in unit_version.';
COMMENT ON COLUMN public.information_unit.source_document_ref IS 'Opaque ref to source document for batch notification grouping. Nullable.';
COMMENT ON COLUMN public.information_unit.import_batch_ref IS 'Opaque ref to import batch/job. Nullable.';

CREATE TABLE public.unit_version (
  id          uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  unit_id     uuid NOT NULL REFERENCES public.information_unit (id),
  version_seq int NOT NULL CHECK (version_seq > 0),
  body        text NOT NULL,
  created_by  text NOT NULL CHECK (created_by <> ''),
  created_at  timestamptz NOT NULL DEFAULT now(),
  UNIQUE (unit_id, version_seq)
);
COMMENT ON TABLE public.unit_version IS 'The versions of a unit. The body stays here: no notification carries it.';

CREATE TABLE public.iu_comment (
  id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  unit_id    uuid NOT NULL REFERENCES public.information_unit (id),
  body       text NOT NULL,
  created_by text NOT NULL CHECK (created_by <> ''),
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ix_iu_comment_unit ON public.iu_comment (unit_id, created_at);
COMMENT ON TABLE public.iu_comment IS 'What was said about a unit.';

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
COMMENT ON TABLE public.iu_draft IS 'Proposed texts of units; applied once, each then is a version.';

GRANT SELECT ON public.information_unit TO queue_viewer;
GRANT SELECT (id, unit_id, version_seq, created_by, created_at) ON public.unit_version TO queue_viewer;
GRANT SELECT (id, unit_id, created_by, created_at) ON public.iu_comment TO queue_viewer;
GRANT SELECT (id, unit_id, created_by, created_at, applied_version_id, applied_at) ON public.iu_draft TO queue_viewer;

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
    CONSTRAINT chk_notif_event_payload CHECK (jsonb_typeof(payload) = 'object' AND NOT payload ?| ARRAY[
      'body', 'content', 'raw', 'vector', 'embedding', 'secret', 'token', 'password', 'ssn', 'personal_data']),
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
COMMENT ON TABLE public.iu_notification_event IS
  'Notifications, each once per type and what it is about (ref_id: the comment, draft or version; of a document, its '
  'first piece). The payload carries counts and references, never content.';

CREATE TABLE public.iu_notification_read (
  event_id   uuid NOT NULL REFERENCES public.iu_notification_event (id),
  reader_ref text NOT NULL CHECK (reader_ref <> ''),
  read_at    timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (event_id, reader_ref)
);
COMMENT ON TABLE public.iu_notification_read IS 'Who has read what. Their own doings nobody needs to read.';

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
  CONSTRAINT chk_notif_pending_failure CHECK ((failed_at IS NULL) = (failure IS NULL) AND (failed_at IS NULL OR processed_at IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX idx_notif_pending_unprocessed ON public.iu_notification_pending (created_at)
  WHERE processed_at IS NULL;
CREATE INDEX idx_notif_pending_stable_key ON public.iu_notification_pending (source_document_ref, import_batch_ref)
  WHERE processed_at IS NULL;
CREATE INDEX ix_notif_pending_processed ON public.iu_notification_pending (processed_at) WHERE processed_at IS NOT NULL;
CREATE INDEX ix_notif_pending_failed ON public.iu_notification_pending (failed_at) WHERE failed_at IS NOT NULL;
COMMENT ON TABLE public.iu_notification_pending IS
  'The staging outbox: births of pieces that wait to be told, one by one or as a document. failed_at: the worker could '
  'not tell this one and why; it is passed over until fn_iu_notification_requeue.';

COMMENT ON COLUMN public.iu_notification_pending.ref_id IS 'the unit_version that was born; the notification is about it';
COMMENT ON COLUMN public.iu_notification_pending.created_at IS 'begins the debounce';
COMMENT ON COLUMN public.iu_notification_pending.processed_at IS 'told, by itself or within its document';
COMMENT ON COLUMN public.iu_notification_pending.failure IS 'what is wrong with the row, or what the server said to it';

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
COMMENT ON COLUMN public.iu_notification_worker_log.groups_emitted IS 'document_imported notifications';
COMMENT ON COLUMN public.iu_notification_worker_log.pieces_emitted IS 'new_piece_created notifications';
COMMENT ON COLUMN public.iu_notification_worker_log.conflicts_skipped IS 'notifications that were there already';
COMMENT ON COLUMN public.iu_notification_worker_log.error_count IS 'rows that failed in this run; 1 where the run as a whole did and was undone';
CREATE INDEX ix_iu_notification_worker_log_run ON public.iu_notification_worker_log (run_at DESC);
COMMENT ON TABLE public.iu_notification_worker_log IS
  'One row per run of the notification worker that had something to do. pending_pre: rows it took up, = rows_marked + '
  'those that failed; pending_post: rows not processed after it, of which failed_total stand failed.';

GRANT SELECT ON public.iu_notification_pending, public.iu_notification_worker_log, public.iu_notification_read TO
  queue_viewer, workflow_admin, dead_letter_operator;
GRANT SELECT (id, event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref, source, created_at)
  ON public.iu_notification_event TO queue_viewer, workflow_admin, dead_letter_operator;

-- What the panes count: rows that wait and rows that failed.
CREATE FUNCTION public.fn_iu_notif_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO public.queue_counter_delta (scope, k1, n)
    SELECT 'notification_pending', CASE WHEN n.failed_at IS NULL THEN 'waiting' ELSE 'failed' END, count(*)
    FROM new_rows n WHERE n.processed_at IS NULL GROUP BY 2;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO public.queue_counter_delta (scope, k1, n)
    SELECT 'notification_pending', CASE WHEN o.failed_at IS NULL THEN 'waiting' ELSE 'failed' END, -count(*)
    FROM old_rows o WHERE o.processed_at IS NULL GROUP BY 2;
  ELSE
    INSERT INTO public.queue_counter_delta (scope, k1, n)
    SELECT 'notification_pending', x.k, sum(x.n) FROM (
      SELECT CASE WHEN o.failed_at IS NULL THEN 'waiting' ELSE 'failed' END AS k, -count(*) AS n
      FROM old_rows o WHERE o.processed_at IS NULL GROUP BY 1
      UNION ALL SELECT CASE WHEN n.failed_at IS NULL THEN 'waiting' ELSE 'failed' END, count(*)
      FROM new_rows n WHERE n.processed_at IS NULL GROUP BY 1) x
    GROUP BY x.k HAVING sum(x.n) <> 0;
  END IF;
  RETURN NULL;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_notif_counted() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_iu_notif_counted() IS 'Trigger function: the counter notification_pending, per statement.';
CREATE TRIGGER trg_iu_notif_pending_inserted AFTER INSERT ON public.iu_notification_pending
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_iu_notif_counted();
CREATE TRIGGER trg_iu_notif_pending_updated AFTER UPDATE ON public.iu_notification_pending
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_iu_notif_counted();
CREATE TRIGGER trg_iu_notif_pending_deleted AFTER DELETE ON public.iu_notification_pending
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_iu_notif_counted();
CREATE TRIGGER trg_iu_notif_pending_no_truncate BEFORE TRUNCATE ON public.iu_notification_pending
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change(); -- the counters would not learn of it

-- ---------------------------------------------------------------------------
-- Hooks. Each is one insert and one primary-key lookup, whatever the size of
-- the tables: writing a piece must not grow dearer with what was written. Without
-- enable_seqscan = off a session that began on a small table would keep the plan
-- that suited that.
-- ---------------------------------------------------------------------------
CREATE FUNCTION public.fn_iu_notif_birth() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $fn$
BEGIN
  INSERT INTO public.iu_notification_pending
    (event_kind, unit_id, canonical_address, source_document_ref, import_batch_ref, actor_ref, ref_id)
  SELECT 'piece_birth', NEW.unit_id, iu.canonical_address, iu.source_document_ref, iu.import_batch_ref, NEW.created_by, NEW.id
  FROM public.information_unit iu WHERE iu.id = NEW.unit_id;
  RETURN NEW;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_notif_birth() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_iu_notif_birth() IS 'Trigger function: stages the birth of a piece (its first version).';
CREATE TRIGGER trg_aa_iu_notif_birth AFTER INSERT ON public.unit_version
  FOR EACH ROW WHEN (NEW.version_seq = 1) EXECUTE FUNCTION public.fn_iu_notif_birth();

CREATE FUNCTION public.fn_iu_notif_version() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $fn$
BEGIN
  INSERT INTO public.iu_notification_event
    (event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref, source, payload)
  SELECT 'version_applied', 'update', NEW.unit_id, iu.canonical_address, NEW.id, NEW.created_by, 'trigger',
    jsonb_build_object('version_seq', NEW.version_seq)
  FROM public.information_unit iu WHERE iu.id = NEW.unit_id;
  RETURN NEW;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_notif_version() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_iu_notif_version() IS 'Trigger function: tells of a later version at once.';
CREATE TRIGGER trg_aa_iu_notif_version AFTER INSERT ON public.unit_version
  FOR EACH ROW WHEN (NEW.version_seq > 1) EXECUTE FUNCTION public.fn_iu_notif_version();

CREATE FUNCTION public.fn_iu_notif_comment() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $fn$
BEGIN
  INSERT INTO public.iu_notification_event (event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref, source)
  SELECT 'comment_added', 'comment', NEW.unit_id, iu.canonical_address, NEW.id, NEW.created_by, 'trigger'
  FROM public.information_unit iu WHERE iu.id = NEW.unit_id;
  RETURN NEW;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_notif_comment() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_iu_notif_comment() IS 'Trigger function: tells of a comment at once.';
CREATE TRIGGER trg_aa_iu_notif_comment AFTER INSERT ON public.iu_comment
  FOR EACH ROW EXECUTE FUNCTION public.fn_iu_notif_comment();

CREATE FUNCTION public.fn_iu_notif_draft() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $fn$
BEGIN
  INSERT INTO public.iu_notification_event (event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref, source)
  SELECT 'draft_created', 'review', NEW.unit_id, iu.canonical_address, NEW.id, NEW.created_by, 'trigger'
  FROM public.information_unit iu WHERE iu.id = NEW.unit_id;
  RETURN NEW;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_notif_draft() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_iu_notif_draft() IS 'Trigger function: tells of a draft at once.';
CREATE TRIGGER trg_aa_iu_notif_draft AFTER INSERT ON public.iu_draft
  FOR EACH ROW EXECUTE FUNCTION public.fn_iu_notif_draft();

-- ---------------------------------------------------------------------------
-- Gateways. Bad arguments raise 22023; what the state of a unit forbids is
-- refused with its rule.
-- ---------------------------------------------------------------------------
-- fn_iu_text(name, value, most) → the value without blanks around it; 22023 when
-- it says nothing or more than most characters. Internal.
CREATE FUNCTION public.fn_iu_text(p_name text, p_value text, p_most int) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  IF COALESCE(btrim(p_value), '') = '' OR length(p_value) > p_most THEN
    RAISE EXCEPTION '% must have 1 to % characters', p_name, p_most USING ERRCODE = '22023';
  END IF;
  RETURN btrim(p_value);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_text(text, text, int) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_iu_text(text, text, int) IS 'Checks and trims a text given to a gateway. Internal.';

-- fn_iu_save(address, body, actor, document, batch) → {unit_id, version_id, version_seq: 1, canonical_address}: the
-- unit with its refs, then version 1, so that the birth hook finds them. refused: exists, with the unit_id, so that
-- whoever lost the answer and asks again learns it.
CREATE FUNCTION public.fn_iu_save(p_canonical_address text, p_body text, p_actor text,
  p_source_document_ref text DEFAULT NULL, p_import_batch_ref text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $fn$
DECLARE
  v_address text := public.fn_iu_text('p_canonical_address', p_canonical_address, 500);
  v_actor text := public.fn_iu_text('p_actor', p_actor, 200);
  v_document text := NULLIF(btrim(p_source_document_ref), '');
  v_batch text := NULLIF(btrim(p_import_batch_ref), '');
  v_unit uuid;
  v_version uuid;
BEGIN
  PERFORM public.fn_iu_text('p_body', p_body, 1000000);
  IF v_document IS NOT NULL THEN
    v_document := public.fn_iu_text('p_source_document_ref', v_document, 500);
  END IF;
  IF v_batch IS NOT NULL THEN
    v_batch := public.fn_iu_text('p_import_batch_ref', v_batch, 500);
  END IF;
  INSERT INTO public.information_unit (canonical_address, source_document_ref, import_batch_ref, created_by)
  VALUES (v_address, v_document, v_batch, v_actor) ON CONFLICT (canonical_address) DO NOTHING RETURNING id INTO v_unit;
  IF v_unit IS NULL THEN
    SELECT u.id INTO v_unit FROM public.information_unit u WHERE u.canonical_address = v_address;
    RETURN jsonb_build_object('refused', true, 'rule', 'exists', 'unit_id', v_unit,
      'reason', 'there is a unit at this address already; change it with a draft');
  END IF;
  INSERT INTO public.unit_version (unit_id, version_seq, body, created_by) VALUES (v_unit, 1, p_body, v_actor) RETURNING id INTO v_version;
  RETURN jsonb_build_object('unit_id', v_unit, 'version_id', v_version, 'version_seq', 1, 'canonical_address', v_address);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_save(text, text, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_save(text, text, text, text, text) TO event_ingest_writer;
COMMENT ON FUNCTION public.fn_iu_save(text, text, text, text, text) IS
  'Writes a new unit with its refs and its first version in one call; its birth is staged for the notification worker.';

-- fn_iu_comment(unit, body, actor) → {comment_id, unit_id}. refused: unknown_unit.
CREATE FUNCTION public.fn_iu_comment(p_unit_id uuid, p_body text, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $fn$
DECLARE
  v_actor text := public.fn_iu_text('p_actor', p_actor, 200);
  v_id uuid;
BEGIN
  PERFORM public.fn_iu_text('p_body', p_body, 1000000);
  INSERT INTO public.iu_comment (unit_id, body, created_by)
  SELECT u.id, p_body, v_actor FROM public.information_unit u WHERE u.id = p_unit_id RETURNING id INTO v_id;
  IF v_id IS NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'unknown_unit', 'reason', 'there is no such unit');
  END IF;
  RETURN jsonb_build_object('comment_id', v_id, 'unit_id', p_unit_id);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_comment(uuid, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_comment(uuid, text, text) TO event_ingest_writer;
COMMENT ON FUNCTION public.fn_iu_comment(uuid, text, text) IS 'Comments on a unit; told at once, never through staging.';

-- fn_iu_draft_create(unit, body, actor) → {draft_id, unit_id}. refused: unknown_unit.
CREATE FUNCTION public.fn_iu_draft_create(p_unit_id uuid, p_body text, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $fn$
DECLARE
  v_actor text := public.fn_iu_text('p_actor', p_actor, 200);
  v_id uuid;
BEGIN
  PERFORM public.fn_iu_text('p_body', p_body, 1000000);
  INSERT INTO public.iu_draft (unit_id, body, created_by)
  SELECT u.id, p_body, v_actor FROM public.information_unit u WHERE u.id = p_unit_id RETURNING id INTO v_id;
  IF v_id IS NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'unknown_unit', 'reason', 'there is no such unit');
  END IF;
  RETURN jsonb_build_object('draft_id', v_id, 'unit_id', p_unit_id);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_draft_create(uuid, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_draft_create(uuid, text, text) TO event_ingest_writer;
COMMENT ON FUNCTION public.fn_iu_draft_create(uuid, text, text) IS 'Proposes a text for a unit; told at once, never through staging.';

-- fn_iu_draft_apply(draft, actor) → {version_id, version_seq, unit_id}: the draft becomes the unit's next version.
-- refused: unknown_draft; applied, with the version it became.
CREATE FUNCTION public.fn_iu_draft_apply(p_draft_id uuid, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off AS $fn$
DECLARE
  v_actor text := public.fn_iu_text('p_actor', p_actor, 200);
  v_draft public.iu_draft;
  v_version uuid;
  v_seq int;
BEGIN
  -- the unit first: two drafts of it must not become the same version
  PERFORM 1 FROM public.information_unit u WHERE u.id = (SELECT d.unit_id FROM public.iu_draft d WHERE d.id = p_draft_id) FOR NO KEY UPDATE;
  SELECT * INTO v_draft FROM public.iu_draft d WHERE d.id = p_draft_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'unknown_draft', 'reason', 'there is no such draft');
  END IF;
  IF v_draft.applied_version_id IS NOT NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'applied', 'version_id', v_draft.applied_version_id,
      'reason', 'this draft was applied already');
  END IF;
  SELECT v.version_seq + 1 INTO v_seq FROM public.unit_version v WHERE v.unit_id = v_draft.unit_id ORDER BY v.version_seq DESC LIMIT 1;
  INSERT INTO public.unit_version (unit_id, version_seq, body, created_by)
  VALUES (v_draft.unit_id, COALESCE(v_seq, 1), v_draft.body, v_actor) RETURNING id, version_seq INTO v_version, v_seq;
  UPDATE public.iu_draft SET applied_version_id = v_version, applied_at = now() WHERE id = p_draft_id;
  RETURN jsonb_build_object('version_id', v_version, 'version_seq', v_seq, 'unit_id', v_draft.unit_id);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_draft_apply(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_draft_apply(uuid, text) TO event_ingest_writer;
COMMENT ON FUNCTION public.fn_iu_draft_apply(uuid, text) IS 'Makes a draft the next version of its unit, once; told at once.';

-- fn_iu_notification_board(reader, limit) → the newest notifications, newest first, as this reader sees them:
-- read_state unread, read, or implicit_self for what the reader did.
CREATE FUNCTION public.fn_iu_notification_board(p_reader text, p_limit int DEFAULT 200) RETURNS TABLE (
  id uuid, event_type text, event_stream text, unit_id uuid, canonical_address text, ref_id uuid, actor_ref text,
  source text, payload jsonb, created_at timestamptz, read_state text, read_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_reader text := public.fn_iu_text('p_reader', p_reader, 200);
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 10000' USING ERRCODE = '22023';
  END IF;
  RETURN QUERY
  SELECT e.id, e.event_type, e.event_stream, e.unit_id, e.canonical_address, e.ref_id, e.actor_ref, e.source, e.payload, e.created_at,
    CASE WHEN e.actor_ref = v_reader THEN 'implicit_self' WHEN r.read_at IS NOT NULL THEN 'read' ELSE 'unread' END, r.read_at
  FROM (SELECT * FROM public.iu_notification_event n ORDER BY n.created_at DESC, n.id LIMIT p_limit) e
  LEFT JOIN public.iu_notification_read r ON r.event_id = e.id AND r.reader_ref = v_reader
  ORDER BY e.created_at DESC, e.id;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_notification_board(text, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_notification_board(text, int) TO event_ingest_writer;
COMMENT ON FUNCTION public.fn_iu_notification_board(text, int) IS
  'The board of a reader: the newest notifications with what was read; one''s own count as read (implicit_self).';

-- fn_iu_notification_mark_read(reader, ids) → {marked}: notifications that this reader has now read; repeating it, or
-- naming one's own, marks none.
CREATE FUNCTION public.fn_iu_notification_mark_read(p_reader text, p_event_ids uuid[]) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_reader text := public.fn_iu_text('p_reader', p_reader, 200);
  v_marked bigint;
BEGIN
  INSERT INTO public.iu_notification_read (event_id, reader_ref)
  SELECT e.id, v_reader FROM public.iu_notification_event e
  WHERE e.id = ANY (public.fn_job_ids(p_event_ids)) AND e.actor_ref <> v_reader ORDER BY e.id
  ON CONFLICT (event_id, reader_ref) DO NOTHING;
  GET DIAGNOSTICS v_marked = ROW_COUNT;
  RETURN jsonb_build_object('marked', v_marked);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_notification_mark_read(text, uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_notification_mark_read(text, uuid[]) TO event_ingest_writer;
COMMENT ON FUNCTION public.fn_iu_notification_mark_read(text, uuid[]) IS 'Marks notifications as read by a reader.';

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
DROP FUNCTION public.fn_iu_notification_mark_read(text, uuid[]);
DROP FUNCTION public.fn_iu_notification_board(text, int);
DROP FUNCTION public.fn_iu_draft_apply(uuid, text);
DROP FUNCTION public.fn_iu_draft_create(uuid, text, text);
DROP FUNCTION public.fn_iu_comment(uuid, text, text);
DROP FUNCTION public.fn_iu_save(text, text, text, text, text);
DROP FUNCTION public.fn_iu_text(text, text, int);
DROP TRIGGER trg_aa_iu_notif_birth ON public.unit_version;
DROP TRIGGER trg_aa_iu_notif_version ON public.unit_version;
DROP TABLE public.iu_notification_worker_log;
DROP TABLE public.iu_notification_pending;
DROP TABLE public.iu_notification_read;
DROP TABLE public.iu_notification_event;
DROP TABLE public.iu_draft;
DROP TABLE public.iu_comment;
DROP TABLE public.unit_version;
DROP TABLE public.information_unit;
DROP FUNCTION public.fn_iu_notif_draft();
DROP FUNCTION public.fn_iu_notif_comment();
DROP FUNCTION public.fn_iu_notif_version();
DROP FUNCTION public.fn_iu_notif_birth();
DROP FUNCTION public.fn_iu_notif_counted();
DELETE FROM public.queue_counter WHERE scope = 'notification_pending';
DELETE FROM public.queue_counter_delta WHERE scope = 'notification_pending';
RESET ROLE;
