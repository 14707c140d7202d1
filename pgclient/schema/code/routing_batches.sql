-- Batches of events: how a reader of events goes from one PostgreSQL snapshot to the next. A batch has a snapshot; an
-- event belongs to the batch if its transaction is visible in this snapshot and was not visible in the snapshot of the
-- batch before. So a transaction that stays open delays only its own events, and the events of a transaction that
-- commits late are in the first batch that starts after its commit. The transaction of an event is the top-level
-- transaction, even if the event was written in a savepoint.
--
-- 1. A reader locks its cursor. If no batch is open, it opens one: it stores fn_routing_snapshot in batch.
-- 2. It reads events of the ranges of fn_routing_ranges(routed, batch), ordered by (created_xid, id), at most as many
-- as its caller asked for. If events remain, it stores the last one that it read in (batch_xid, batch_id).
-- 3. When the batch is done, batch becomes routed. An empty batch is not stored: an idle reader writes nothing.
--
-- Snapshots compare transaction ids, and those of events that were written elsewhere say nothing here. A reader whose
-- cursor or events may have come from elsewhere (fn_routing_moved) therefore once reads all events by id, and
-- recognises those that are routed by what routing made of them:
--
-- 1. The cursor has another origin: the cluster, the database or the tables of events are not those in which the cursor
--    was stored. So is it after a restore of a dump, also of the rows alone.
-- 2. The database was adopted. A dump that returns to its first cluster has the system identifier of that cluster, and
--    events with transaction ids of another one.
-- 3. Rows of events were loaded while the triggers were disabled that set their transaction ids
--    (fn_routing_loaded), as by pg_restore --data-only --disable-triggers.

COMMENT ON TABLE public.queue_cursor IS
  'Progress of each reader of events: worker_name and domain of iu_route_worker_cursor, webhook_router and webhook, '
  'metrics_sampler and an empty domain. No row: the reader has not run since this table was created.';
COMMENT ON COLUMN public.queue_cursor.routed IS 'every event whose transaction is visible in this snapshot is done';
COMMENT ON COLUMN public.queue_cursor.batch IS
  'the open batch: events visible in this snapshot and not in routed; null = no batch is open';
COMMENT ON COLUMN public.queue_cursor.batch_xid IS 'created_xid of the last event that was read of the open batch';
COMMENT ON COLUMN public.queue_cursor.batch_id IS 'id of that event';
COMMENT ON COLUMN public.queue_cursor.version IS
  'rises with each change; read in descending order, so that row versions of earlier changes are never read';
COMMENT ON COLUMN public.queue_cursor.origin IS
  'the cluster, database and tables of events (fn_routing_origin) in which it was stored; NULL = by an earlier release';
COMMENT ON COLUMN public.queue_cursor.uncounted IS
  'work of quick runs (fn_queue_tick_run) by counter: the next full run adds it to the row of the reader';
GRANT SELECT ON public.queue_cursor TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

-- fn_routing_origin() → the cluster, the database and the tables of events, which together identify the history to
-- which the transaction ids of events belong. Internal.
CREATE OR REPLACE FUNCTION public.fn_routing_origin() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN concat_ws('/', (SELECT s.system_identifier FROM pg_control_system() s),
    (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()), 'public.events'::regclass::oid,
    'public.event_outbox'::regclass::oid);
END
$fn$;
COMMENT ON FUNCTION public.fn_routing_origin IS
  'The cluster, database and tables to which the transaction ids of events belong. Internal.';

-- fn_routing_moved(cursor, system) → whether the reader must read all events by id, because its cursor says nothing
-- about the events here. system: the system identifier that the reader stored; 0 = it never ran, or
-- fn_routing_restart was called since. A cursor without an origin is from elsewhere if it is ahead of this cluster.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_routing_moved(p_cursor public.queue_cursor, p_system bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_here text := public.fn_routing_origin();
BEGIN
  RETURN p_system <> split_part(v_here, '/', 1)::bigint
    OR COALESCE(p_cursor.origin <> v_here, greatest(pg_snapshot_xmax(p_cursor.routed), pg_snapshot_xmax(p_cursor.batch))
      > pg_snapshot_xmax(pg_current_snapshot()));
END
$fn$;
COMMENT ON FUNCTION public.fn_routing_moved IS
  'Whether a reader must read all events by id, because its cursor is from elsewhere. Internal.';

-- fn_routing_restart(loaded): each reader reads all events by id in its next run. loaded: rows came into the tables of
-- events beside those that the webhook router has routed, so that its offsets say nothing about them. Internal.
CREATE OR REPLACE FUNCTION public.fn_routing_restart(p_loaded boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  UPDATE public.router_offsets o SET system_identifier = 0,
    max_event_id = CASE WHEN p_loaded THEN 0 ELSE o.max_event_id END,
    restored_through_id = CASE WHEN NOT p_loaded THEN o.restored_through_id END,
    restored_after_id = CASE WHEN NOT p_loaded THEN o.restored_after_id END;
  UPDATE public.iu_route_worker_cursor SET system_identifier = 0;
  UPDATE public.event_class_state SET system_identifier = 0;
END
$fn$;
COMMENT ON FUNCTION public.fn_routing_restart IS
  'Makes each reader of events read all of them by id in its next run. Internal.';

-- fn_routing_loaded(): if the triggers that set the transaction ids of events are not ALWAYS, they were disabled, and
-- rows with transaction ids of another cluster may have been loaded: ENABLE TRIGGER ALL, as pg_restore
-- --disable-triggers runs it, leaves them so. Then it makes them ALWAYS again and calls fn_routing_restart. It does so
-- when no session writes events, so that no such row is written any more; until then, the next run tries again. Each
-- full run of a reader calls it first. Internal.
CREATE OR REPLACE FUNCTION public.fn_routing_loaded() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_lock_timeout text := current_setting('lock_timeout');
BEGIN
  IF NOT EXISTS (SELECT FROM public.fn_event_stamps_off()) THEN
    RETURN;
  END IF;
  BEGIN
    PERFORM set_config('lock_timeout', '50ms', true); -- writers of events wait behind this session
    LOCK TABLE public.events, public.event_outbox IN SHARE ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM public.fn_event_stamps_off()) THEN -- another session may have held the lock
      PERFORM public.fn_event_stamps_always();
      PERFORM public.fn_routing_restart(true);
    END IF;
  EXCEPTION WHEN lock_not_available THEN
    NULL;
  END;
  PERFORM set_config('lock_timeout', v_lock_timeout, true);
END
$fn$;
COMMENT ON FUNCTION public.fn_routing_loaded IS
  'Notices that events were loaded without the triggers that set their transaction ids. Internal.';

-- fn_routing_cursor(worker, domain, xid, id) → the row of the reader. If there is no row yet, it builds one from the
-- progress of the previous release: that release had routed every event of transactions before xid and, if id is not
-- zero (xid had ended), the events of xid up to id. A caller that will store the row first locks the row from which xid
-- and id come. Internal.
CREATE OR REPLACE FUNCTION public.fn_routing_cursor(p_worker_name text, p_event_domain text, p_xid xid8, p_id text)
  RETURNS public.queue_cursor
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c public.queue_cursor;
  v_xid bigint := greatest(p_xid::text::bigint, 3); -- the lowest number of a normal transaction
BEGIN
  SELECT * INTO c FROM public.queue_cursor x WHERE x.worker_name = p_worker_name AND x.event_domain = p_event_domain
  ORDER BY x.worker_name, x.event_domain, x.version DESC LIMIT 1;
  IF NOT FOUND THEN
    c.worker_name := p_worker_name;
    c.event_domain := p_event_domain;
    c.version := 0;
    c.uncounted := '{}';
    c.origin := public.fn_routing_origin();
    c.routed := format('%1$s:%1$s:', v_xid)::pg_snapshot;
    IF p_id !~ '^[0-]*$' THEN
      c.batch := format('%1$s:%1$s:', v_xid + 1)::pg_snapshot;
      c.batch_xid := v_xid::text::xid8;
      c.batch_id := p_id;
    END IF;
  END IF;
  RETURN c;
END
$fn$;
COMMENT ON FUNCTION public.fn_routing_cursor IS
  'Progress of a reader of events, carried over from the previous release at its first run. Internal.';

-- fn_routing_cursor_keep(cursor): stores the cursor if it has changed. A cursor that fn_routing_cursor has built has
-- version 0 and is inserted. Internal.
CREATE OR REPLACE FUNCTION public.fn_routing_cursor_keep(p_cursor public.queue_cursor) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  UPDATE public.queue_cursor x SET routed = p_cursor.routed, batch = p_cursor.batch, batch_xid = p_cursor.batch_xid,
    batch_id = p_cursor.batch_id, uncounted = p_cursor.uncounted, origin = p_cursor.origin, version = x.version + 1
  WHERE x.worker_name = p_cursor.worker_name AND x.event_domain = p_cursor.event_domain AND x.version = p_cursor.version
    AND x.*::text <> p_cursor.*::text; -- compared as text: pg_snapshot has no equality operator
  IF p_cursor.version = 0 THEN
    p_cursor.version := 1;
    INSERT INTO public.queue_cursor VALUES (p_cursor.*);
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_routing_cursor_keep IS
  'Stores the progress of a reader of events. Internal.';

-- fn_routing_snapshot() → the current snapshot, in which the caller's own transaction counts as in progress, because
-- that transaction may still write events. Internal.
CREATE OR REPLACE FUNCTION public.fn_routing_snapshot() RETURNS pg_snapshot
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_own xid8 := pg_current_xact_id();
  v_now pg_snapshot := pg_current_snapshot();
BEGIN
  IF v_own < pg_snapshot_xmax(v_now) THEN
    v_now := format('%s:%s:%s', least(v_own, pg_snapshot_xmin(v_now)), pg_snapshot_xmax(v_now),
      (SELECT string_agg(x.xid::text, ',' ORDER BY x.xid)
       FROM (SELECT v_own AS xid UNION SELECT pg_snapshot_xip(v_now)) x))::pg_snapshot;
  END IF;
  RETURN v_now;
END
$fn$;
COMMENT ON FUNCTION public.fn_routing_snapshot IS
  'The snapshot that bounds a batch of events. Internal.';

-- fn_routing_ranges(from, to) → the transactions that are visible in to and not in from, in order, as ranges
-- after < created_xid < before: one range per transaction that was in progress in from and has ended; then those that
-- began after from, without the ones in progress in to. So rows of open transactions are never scanned. Internal.
CREATE OR REPLACE FUNCTION public.fn_routing_ranges(p_from pg_snapshot, p_to pg_snapshot)
  RETURNS TABLE (after xid8, before xid8)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_new xid8 := pg_snapshot_xmax(p_from); -- the first transaction that began after p_from
BEGIN
  RETURN QUERY
  SELECT r.after, r.before FROM (
    SELECT (x::text::bigint - 1)::text::xid8 AS after, (x::text::bigint + 1)::text::xid8 AS before
    FROM pg_snapshot_xip(p_from) x WHERE pg_visible_in_snapshot(x, p_to)
    UNION ALL
    SELECT g.after, lead(g.after, 1, pg_snapshot_xmax(p_to)) OVER (ORDER BY g.after)
    FROM (SELECT (v_new::text::bigint - 1)::text::xid8 AS after
      UNION ALL SELECT x FROM pg_snapshot_xip(p_to) x WHERE x >= v_new) g) r
  WHERE r.before::text::bigint - r.after::text::bigint > 1 ORDER BY r.after;
END
$fn$;
COMMENT ON FUNCTION public.fn_routing_ranges IS
  'The transactions that are visible in one snapshot and not in another. Internal.';

-- fn_routing_held() → transactions of this database that have been open for over a minute and have written webhook
-- events (domain webhook) or events of the outbox (domain NULL: their domains are not visible yet). They delay only
-- their own events. pid is NULL for a prepared transaction. A transaction is omitted if the owner of this function may
-- not see its start. SECURITY DEFINER, because roles that may see queue health may not see other sessions.
CREATE OR REPLACE FUNCTION public.fn_routing_held()
  RETURNS TABLE (worker_name text, event_domain text, pid int, usename text, program text, xact_start timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  -- locks are read only if there is such a transaction: reading them is expensive
  IF EXISTS (SELECT 1 FROM pg_stat_activity a WHERE a.backend_xid IS NOT NULL
      AND a.xact_start < now() - interval '1 minute')
    OR EXISTS (SELECT 1 FROM pg_prepared_xacts p WHERE p.prepared < now() - interval '1 minute') THEN
    RETURN QUERY
    SELECT t.worker_name, t.event_domain, s.pid, s.usename, s.program, s.xact_start
    FROM (VALUES ('webhook_router', 'webhook', 'public.events'::regclass),
      ('iu_outbound_default', NULL, 'public.event_outbox'::regclass)) t (worker_name, event_domain, written)
    JOIN pg_locks l ON l.locktype = 'relation' AND l.relation = t.written AND l.mode = 'RowExclusiveLock'
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    JOIN (
      SELECT a.pid, NULL AS holder, a.usename::text, a.application_name AS program, a.xact_start FROM pg_stat_activity a
      UNION ALL
      SELECT NULL, x.virtualtransaction, p.owner::text, 'prepared transaction ' || p.gid, p.prepared
      FROM pg_prepared_xacts p JOIN pg_locks x ON x.locktype = 'transactionid' AND x.transactionid = p.transaction
        AND x.mode = 'ExclusiveLock'
      WHERE p.database = current_database()) s ON s.pid = l.pid OR l.pid IS NULL AND s.holder = l.virtualtransaction
    WHERE s.xact_start < now() - interval '1 minute' ORDER BY s.xact_start;
  END IF;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_routing_held TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_routing_held IS
  'Transactions open for over a minute that wrote events; those events are routed after they end.';
