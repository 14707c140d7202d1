-- Information units: the functions that write them, and their notifications. Source: P3D4C1 §2, §3, §5.

COMMENT ON TABLE public.information_unit IS
  'Information units by address; their text is in unit_version.';
COMMENT ON COLUMN public.information_unit.source_document_ref IS
  'the producer''s reference to the source document: new units of one document can share a notification; NULL = none';
COMMENT ON COLUMN public.information_unit.import_batch_ref IS
  'the producer''s reference to the import that wrote the unit; NULL = none';
GRANT SELECT ON public.information_unit TO :"queue_viewer";

COMMENT ON TABLE public.unit_version IS
  'The versions of a unit. The body is only here: no notification contains it.';
GRANT SELECT (id, unit_id, version_seq, created_by, created_at) ON public.unit_version TO :"queue_viewer";

COMMENT ON TABLE public.iu_comment IS 'Comments on units.';
GRANT SELECT (id, unit_id, created_by, created_at) ON public.iu_comment TO :"queue_viewer";

COMMENT ON TABLE public.iu_draft IS
  'Proposed texts of units; a draft that was applied has become a version.';
GRANT SELECT (id, unit_id, created_by, created_at, applied_version_id, applied_at)
  ON public.iu_draft TO :"queue_viewer";

COMMENT ON TABLE public.iu_notification_event IS
  'Notifications, one per type and subject (ref_id: the comment, draft or version; of a document, the first version of '
  'its oldest new unit). The payload contains counts and references, never content.';
GRANT SELECT (id, event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref, source, created_at)
  ON public.iu_notification_event TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";

COMMENT ON TABLE public.iu_notification_read IS
  'Which reader has read which notification. Readers need not mark their own actions as read.';

COMMENT ON TABLE public.iu_notification_pending IS
  'The staging outbox: new units that wait to be published as notifications, one by one or as a document. failed_at: '
  'the worker could not publish this row, for the reason in failure; it is skipped until fn_iu_notification_requeue.';
COMMENT ON COLUMN public.iu_notification_pending.ref_id IS
  'the first version of the unit (unit_version), which the notification is about';
COMMENT ON COLUMN public.iu_notification_pending.created_at IS
  'when it was staged; it waits for further units of its document from this time on (fn_iu_notification_debounce)';
COMMENT ON COLUMN public.iu_notification_pending.processed_at IS
  'when it was published, alone or as part of its document';
COMMENT ON COLUMN public.iu_notification_pending.failure IS 'what is wrong with the row, or the error of the server';
GRANT SELECT ON public.iu_notification_pending, public.iu_notification_worker_log, public.iu_notification_read TO
  :"queue_viewer", :"workflow_admin", :"dead_letter_operator";

-- fn_iu_notif_counted(): counts waiting and failed rows (counter notification_pending); the console shows this counter.
CREATE OR REPLACE FUNCTION public.fn_iu_notif_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_direct boolean;
BEGIN
  IF TG_OP = 'INSERT' THEN
    BEGIN -- the same as fn_queue_count, inlined because this insert is frequent
      LOCK TABLE public.queue_counter_recent IN ROW EXCLUSIVE MODE NOWAIT;
      SELECT c.relnatts = 6 AND c.relchecks = 0
        AND NOT (c.relhastriggers OR c.relhasrules OR c.relrowsecurity)
        AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid
          AND (i.indkey::text <> '6' OR i.indisunique OR i.indpred IS NOT NULL))
        AND NOT EXISTS (SELECT d.scope, d.k1, d.k2, d.k3, d.n FROM public.queue_counter_recent d WHERE false)
      INTO v_direct FROM pg_class c WHERE c.oid = 'public.queue_counter_recent'::regclass;
    EXCEPTION WHEN OTHERS THEN
      v_direct := false;
    END;
    IF v_direct THEN
      INSERT INTO public.queue_counter_recent (scope, k1, n)
      SELECT 'notification_pending', CASE WHEN n.failed_at IS NULL THEN 'waiting' ELSE 'failed' END, count(*)
      FROM new_rows n WHERE n.processed_at IS NULL GROUP BY 2;
      RETURN NULL;
    END IF;
    PERFORM public.fn_queue_count(array_agg(ARRAY['notification_pending', x.k, '', '', x.n::text]))
    FROM (SELECT CASE WHEN n.failed_at IS NULL THEN 'waiting' ELSE 'failed' END AS k, count(*) AS n
      FROM new_rows n WHERE n.processed_at IS NULL GROUP BY 1) x;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO public.queue_counter_recent (scope, k1, n)
    SELECT 'notification_pending', CASE WHEN o.failed_at IS NULL THEN 'waiting' ELSE 'failed' END, -count(*)
    FROM old_rows o WHERE o.processed_at IS NULL GROUP BY 2;
  ELSE
    INSERT INTO public.queue_counter_recent (scope, k1, n)
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
COMMENT ON FUNCTION public.fn_iu_notif_counted IS
  'Trigger function: maintains the counter notification_pending, per statement.';

CREATE OR REPLACE TRIGGER trg_iu_notif_pending_inserted AFTER INSERT ON public.iu_notification_pending
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_iu_notif_counted();
CREATE OR REPLACE TRIGGER trg_iu_notif_pending_updated AFTER UPDATE ON public.iu_notification_pending
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT
    EXECUTE FUNCTION public.fn_iu_notif_counted();
CREATE OR REPLACE TRIGGER trg_iu_notif_pending_deleted AFTER DELETE ON public.iu_notification_pending
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_iu_notif_counted();
-- TRUNCATE is refused because no trigger would update the counters.
CREATE OR REPLACE TRIGGER trg_iu_notif_pending_no_truncate BEFORE TRUNCATE ON public.iu_notification_pending
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();

-- Triggers that stage or publish notifications. Each makes one insert and one primary-key lookup, so that the cost of
-- writing a unit does not grow with the size of the tables. enable_seqscan = off: otherwise a session that began on a
-- small table would keep a plan for a small table.
CREATE OR REPLACE FUNCTION public.fn_iu_notif_birth() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
BEGIN
  INSERT INTO public.iu_notification_pending
    (event_kind, unit_id, canonical_address, source_document_ref, import_batch_ref, actor_ref, ref_id)
  SELECT 'piece_birth', NEW.unit_id, iu.canonical_address, iu.source_document_ref, iu.import_batch_ref,
    NEW.created_by, NEW.id
  FROM public.information_unit iu WHERE iu.id = NEW.unit_id;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_notif_birth IS
  'Trigger function: stages the notification of a new unit, when its first version is written.';

CREATE OR REPLACE TRIGGER trg_aa_iu_notif_birth AFTER INSERT ON public.unit_version
  FOR EACH ROW WHEN (NEW.version_seq = 1) EXECUTE FUNCTION public.fn_iu_notif_birth();

CREATE OR REPLACE FUNCTION public.fn_iu_notif_version() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
BEGIN
  INSERT INTO public.iu_notification_event
    (event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref, source, payload)
  SELECT 'version_applied', 'update', NEW.unit_id, iu.canonical_address, NEW.id, NEW.created_by, 'trigger',
    jsonb_build_object('version_seq', NEW.version_seq)
  FROM public.information_unit iu WHERE iu.id = NEW.unit_id;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_notif_version IS
  'Trigger function: publishes a later version at once.';

CREATE OR REPLACE TRIGGER trg_aa_iu_notif_version AFTER INSERT ON public.unit_version
  FOR EACH ROW WHEN (NEW.version_seq > 1) EXECUTE FUNCTION public.fn_iu_notif_version();

CREATE OR REPLACE FUNCTION public.fn_iu_notif_comment() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
BEGIN
  INSERT INTO public.iu_notification_event (event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref,
    source)
  SELECT 'comment_added', 'comment', NEW.unit_id, iu.canonical_address, NEW.id, NEW.created_by, 'trigger'
  FROM public.information_unit iu WHERE iu.id = NEW.unit_id;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_notif_comment IS 'Trigger function: publishes a comment at once.';

CREATE OR REPLACE TRIGGER trg_aa_iu_notif_comment AFTER INSERT ON public.iu_comment
  FOR EACH ROW EXECUTE FUNCTION public.fn_iu_notif_comment();

CREATE OR REPLACE FUNCTION public.fn_iu_notif_draft() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
BEGIN
  INSERT INTO public.iu_notification_event (event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref,
    source)
  SELECT 'draft_created', 'review', NEW.unit_id, iu.canonical_address, NEW.id, NEW.created_by, 'trigger'
  FROM public.information_unit iu WHERE iu.id = NEW.unit_id;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_notif_draft IS 'Trigger function: publishes a draft at once.';

CREATE OR REPLACE TRIGGER trg_aa_iu_notif_draft AFTER INSERT ON public.iu_draft
  FOR EACH ROW EXECUTE FUNCTION public.fn_iu_notif_draft();

-- Functions for producers. Invalid arguments raise 22023; an action that the state of the unit forbids raises an error
-- too, so that the producer's transaction keeps all of its writes or none.

-- fn_iu_text(name, value, most) → the value without blanks at both ends; raises 22023 if nothing is left or it has more
-- than most characters. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_text(p_name text, p_value text, p_most int) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_value text := public.fn_trimmed(p_value);
BEGIN
  IF v_value IS NULL OR length(p_value) > p_most THEN
    RAISE EXCEPTION '% must have 1 to % characters', p_name, p_most USING ERRCODE = '22023';
  END IF;
  RETURN v_value;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_text IS 'Checks and trims a text argument. Internal.';

-- fn_iu_save(address, body, actor, document, batch) → {unit_id, version_id, version_seq: 1, canonical_address}: inserts
-- the unit with its references, then version 1, so that the trigger for new units finds the references. 23505 = a unit
-- exists at the address; DETAIL is its id. So a caller that did not receive the answer can call again and gets the id.
CREATE OR REPLACE FUNCTION public.fn_iu_save(p_canonical_address text, p_body text, p_actor text,
  p_source_document_ref text DEFAULT NULL, p_import_batch_ref text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
  v_address text := public.fn_iu_text('p_canonical_address', p_canonical_address, 500);
  v_actor text := public.fn_iu_text('p_actor', p_actor, 200);
  v_document text := public.fn_trimmed(p_source_document_ref);
  v_batch text := public.fn_trimmed(p_import_batch_ref);
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
  PERFORM public.fn_index_fits(ARRAY['p_source_document_ref', 'p_import_batch_ref'], ARRAY[v_document, v_batch]);
  INSERT INTO public.information_unit (canonical_address, source_document_ref, import_batch_ref, created_by)
  VALUES (v_address, v_document, v_batch, v_actor) ON CONFLICT (canonical_address) DO NOTHING RETURNING id INTO v_unit;
  IF v_unit IS NULL THEN
    SELECT u.id INTO v_unit FROM public.information_unit u WHERE u.canonical_address = v_address;
    RAISE EXCEPTION 'an information unit already exists at address %', v_address
      USING ERRCODE = '23505', DETAIL = v_unit::text, HINT = 'change it with a draft: fn_iu_draft_create';
  END IF;
  INSERT INTO public.unit_version (unit_id, version_seq, body, created_by) VALUES (v_unit, 1, p_body, v_actor)
    RETURNING id INTO v_version;
  RETURN jsonb_build_object('unit_id', v_unit, 'version_id', v_version, 'version_seq', 1, 'canonical_address',
    v_address);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_save TO :"event_ingest_writer";
COMMENT ON FUNCTION public.fn_iu_save IS
  'Writes a new unit with its references and its first version in one call; its notification is staged for the '
  'notification worker.';

-- fn_iu_comment(unit, body, actor) → {comment_id, unit_id}. 23503 = there is no such unit.
CREATE OR REPLACE FUNCTION public.fn_iu_comment(p_unit_id uuid, p_body text, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
  v_actor text := public.fn_iu_text('p_actor', p_actor, 200);
  v_id uuid;
BEGIN
  IF p_unit_id IS NULL THEN
    RAISE EXCEPTION 'p_unit_id must not be null' USING ERRCODE = '22023';
  END IF;
  PERFORM public.fn_iu_text('p_body', p_body, 1000000);
  INSERT INTO public.iu_comment (unit_id, body, created_by)
  SELECT u.id, p_body, v_actor FROM public.information_unit u WHERE u.id = p_unit_id RETURNING id INTO v_id;
  IF v_id IS NULL THEN
    RAISE EXCEPTION 'there is no information unit %', p_unit_id USING ERRCODE = '23503';
  END IF;
  RETURN jsonb_build_object('comment_id', v_id, 'unit_id', p_unit_id);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_comment TO :"event_ingest_writer";
COMMENT ON FUNCTION public.fn_iu_comment IS
  'Adds a comment to a unit; the notification is published at once, not staged.';

-- fn_iu_draft_create(unit, body, actor) → {draft_id, unit_id}. 23503 = there is no such unit.
CREATE OR REPLACE FUNCTION public.fn_iu_draft_create(p_unit_id uuid, p_body text, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
  v_actor text := public.fn_iu_text('p_actor', p_actor, 200);
  v_id uuid;
BEGIN
  IF p_unit_id IS NULL THEN
    RAISE EXCEPTION 'p_unit_id must not be null' USING ERRCODE = '22023';
  END IF;
  PERFORM public.fn_iu_text('p_body', p_body, 1000000);
  INSERT INTO public.iu_draft (unit_id, body, created_by)
  SELECT u.id, p_body, v_actor FROM public.information_unit u WHERE u.id = p_unit_id RETURNING id INTO v_id;
  IF v_id IS NULL THEN
    RAISE EXCEPTION 'there is no information unit %', p_unit_id USING ERRCODE = '23503';
  END IF;
  RETURN jsonb_build_object('draft_id', v_id, 'unit_id', p_unit_id);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_draft_create TO :"event_ingest_writer";
COMMENT ON FUNCTION public.fn_iu_draft_create IS
  'Proposes a text for a unit; the notification is published at once, not staged.';

-- fn_iu_draft_apply(draft, actor) → {version_id, version_seq, unit_id}: the draft becomes the unit's next version.
-- 23503 = there is no such draft; 55000 = the draft was applied before; DETAIL is the id of the version that it became.
CREATE OR REPLACE FUNCTION public.fn_iu_draft_apply(p_draft_id uuid, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
  v_actor text := public.fn_iu_text('p_actor', p_actor, 200);
  v_draft public.iu_draft;
  v_version uuid;
  v_seq int;
BEGIN
  IF p_draft_id IS NULL THEN
    RAISE EXCEPTION 'p_draft_id must not be null' USING ERRCODE = '22023';
  END IF;
  -- lock the unit first, so that two of its drafts do not become the same version
  PERFORM 1 FROM public.information_unit u WHERE u.id = (SELECT d.unit_id FROM public.iu_draft d
    WHERE d.id = p_draft_id) FOR NO KEY UPDATE;
  SELECT * INTO v_draft FROM public.iu_draft d WHERE d.id = p_draft_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no draft % of an information unit', p_draft_id USING ERRCODE = '23503';
  END IF;
  IF v_draft.applied_version_id IS NOT NULL THEN
    RAISE EXCEPTION 'draft % has already been applied', p_draft_id
      USING ERRCODE = '55000', DETAIL = v_draft.applied_version_id::text;
  END IF;
  SELECT v.version_seq + 1 INTO v_seq FROM public.unit_version v WHERE v.unit_id = v_draft.unit_id
    ORDER BY v.version_seq DESC LIMIT 1;
  INSERT INTO public.unit_version (unit_id, version_seq, body, created_by)
  VALUES (v_draft.unit_id, COALESCE(v_seq, 1), v_draft.body, v_actor) RETURNING id, version_seq INTO v_version, v_seq;
  UPDATE public.iu_draft SET applied_version_id = v_version, applied_at = now() WHERE id = p_draft_id;
  RETURN jsonb_build_object('version_id', v_version, 'version_seq', v_seq, 'unit_id', v_draft.unit_id);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_draft_apply TO :"event_ingest_writer";
COMMENT ON FUNCTION public.fn_iu_draft_apply IS
  'Makes a draft the next version of its unit, once; the notification is published at once.';

-- fn_iu_reader(reader) → the trimmed name of the reader. Raises 42501 unless this login is a member of the role that
-- the reader (user:ann, or ann) names: only readers themselves may read their board and mark notifications. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_reader(p_reader text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_reader text := public.fn_iu_text('p_reader', p_reader, 200);
BEGIN
  IF NOT public.fn_session_acts_as(v_reader) THEN
    RAISE EXCEPTION 'login % may not read the notifications of %', session_user, v_reader
      USING ERRCODE = '42501', HINT = public.fn_session_needs(v_reader);
  END IF;
  RETURN v_reader;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_reader IS 'Checks that this login may act as the reader of a board. Internal.';

-- fn_iu_notification_board(reader, limit) → the newest notifications, newest first. read_state: unread, read, or
-- implicit_self for the reader's own actions. Raises 42501 if this login may not act as the reader (fn_iu_reader).
CREATE OR REPLACE FUNCTION public.fn_iu_notification_board(p_reader text, p_limit int DEFAULT 200) RETURNS TABLE (
  id uuid, event_type text, event_stream text, unit_id uuid, canonical_address text, ref_id uuid, actor_ref text,
  source text, payload jsonb, created_at timestamptz, read_state text, read_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_reader text := public.fn_iu_reader(p_reader);
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 10000, not %', p_limit USING ERRCODE = '22023';
  END IF;
  RETURN QUERY
  SELECT e.id, e.event_type, e.event_stream, e.unit_id, e.canonical_address, e.ref_id, e.actor_ref, e.source,
    e.payload, e.created_at,
    CASE WHEN e.actor_ref = v_reader THEN 'implicit_self' WHEN r.read_at IS NOT NULL THEN 'read' ELSE 'unread'
      END, r.read_at
  FROM (SELECT * FROM public.iu_notification_event n ORDER BY n.created_at DESC, n.id LIMIT p_limit) e
  LEFT JOIN public.iu_notification_read r ON r.event_id = e.id AND r.reader_ref = v_reader
  ORDER BY e.created_at DESC, e.id;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_notification_board TO :"event_ingest_writer";
COMMENT ON FUNCTION public.fn_iu_notification_board IS
  'The board of a reader: the newest notifications with their read state; own actions count as read (implicit_self).';

-- fn_iu_notification_mark_read(reader, ids) → {marked}: how many notifications this reader has newly read; own actions
-- and notifications that are read already do not count. Raises 42501 like fn_iu_notification_board.
CREATE OR REPLACE FUNCTION public.fn_iu_notification_mark_read(p_reader text, p_event_ids uuid[]) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_reader text := public.fn_iu_reader(p_reader);
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
GRANT EXECUTE ON FUNCTION public.fn_iu_notification_mark_read TO :"event_ingest_writer";
COMMENT ON FUNCTION public.fn_iu_notification_mark_read IS
  'Marks notifications as read by a reader.';
