-- The other connections to this database that affect the queues, and the right to end a session. Source: DP4 §8 (an
-- operator must see which session holds a cursor back). These functions never return the text of a statement.

-- fn_queue_activity() → one row for each connection that may hold queues up: the sessions of this database that have an
-- open transaction, block others, wait for a lock, listen or belong to qtop; and each standby's sender, replication
-- slot and prepared transaction that holds a snapshot. Columns:
--   id               PID@START (START: when the session began), unique also after the system reuses the pid; for a
--                    sender, slot or prepared transaction its name
--   kind             session, sender, slot or prepared
--   state            as in pg_stat_activity, and the time since when
--   snapshot_age     the number of transactions begun since the connection took its oldest snapshot or began to write:
--                    VACUUM keeps every row that was deleted since then
--   oldest_snapshot  true: no other connection holds an older snapshot
--   waits_for        the wait event
--   blocked_by       pids of the sessions that block this session; blocks: pids of the sessions that it blocks
--   tables           up to five of qtop's tables that the session has locked against writers
--   listens          true: the last statement of the session was LISTEN
--   qtop             true: the application_name of the session is one of qtop's
--   seen             false: the owner of this function may not see the session (needs pg_read_all_stats)
-- At most 500 rows: first the holders of the oldest snapshot, then the sessions that block others, then by the start of
-- the transaction. SECURITY DEFINER: the caller needs no right on the server's statistics.
CREATE OR REPLACE FUNCTION public.fn_queue_activity()
RETURNS TABLE (id text, kind text, pid int, started_at timestamptz, login text, program text, client text, state text,
  state_since timestamptz, transaction_since timestamptz, snapshot_age bigint, oldest_snapshot boolean, waits_for text,
  blocked_by int[], blocks int[], tables text[], listens boolean, qtop boolean, seen boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
SET standard_conforming_strings = on AS $fn$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH s AS (
    SELECT CASE a.backend_type WHEN 'walsender' THEN 'sender' ELSE 'session' END AS kind, a.pid, a.backend_start,
      a.usename::text AS login, a.application_name AS program, COALESCE(host(a.client_addr), '') AS client, a.state,
      a.state_change, a.xact_start,
      CASE WHEN a.backend_type <> 'autovacuum worker'
        THEN greatest(age(a.backend_xmin), age(a.backend_xid))::bigint END AS snapshot,
      CASE WHEN a.wait_event_type IN ('Client', 'Activity') THEN '' ELSE COALESCE(a.wait_event_type || ': '
        || a.wait_event, '') END AS waits,
      CASE WHEN a.wait_event_type = 'Lock' THEN pg_blocking_pids(a.pid) ELSE '{}' END AS blocked_by,
      a.query ~* '^\s*LISTEN\s' AS listens, a.application_name ~ '^qtop\M' AS ours, a.backend_start IS NOT NULL AS seen
    FROM pg_stat_activity a
    -- a background worker of an extension has a separate type; that of a hidden session is NULL
    WHERE a.pid <> pg_backend_pid() AND (a.datname = current_database()
        AND COALESCE(a.backend_type, '') NOT IN ('walsender', 'parallel worker')
      OR a.backend_type = 'walsender' AND a.backend_xmin IS NOT NULL)
    UNION ALL
    SELECT 'slot', r.active_pid, NULL, '', 'slot ' || r.slot_name, '',
      CASE WHEN r.active THEN 'active' ELSE 'inactive' END, NULL, NULL, age(r.xmin)::bigint, '', '{}', false, false,
      true
    FROM pg_replication_slots r WHERE r.xmin IS NOT NULL
    UNION ALL
    SELECT 'prepared', NULL, NULL, p.owner::text, 'prepared ' || p.gid, '', 'prepared', p.prepared,
      p.prepared, age(p.transaction)::bigint, '', '{}', false, false, true
    FROM pg_prepared_xacts p WHERE p.database = current_database()
  ), b AS (
    SELECT u.pid AS blocker, array_agg(s.pid ORDER BY s.pid) AS blocks
    FROM s CROSS JOIN LATERAL unnest(s.blocked_by) AS u (pid) GROUP BY u.pid
  ), m AS (SELECT max(s.snapshot) AS oldest FROM s)
  SELECT COALESCE(s.pid || '@' || to_char(s.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
      CASE s.kind WHEN 'session' THEN s.pid::text END, s.program, ''),
    s.kind, s.pid, s.backend_start, COALESCE(s.login, ''), COALESCE(s.program, ''), s.client, COALESCE(s.state, ''),
    s.state_change, s.xact_start, s.snapshot, COALESCE(s.snapshot = m.oldest, false), s.waits, s.blocked_by,
    COALESCE(b.blocks, '{}'),
    CASE WHEN s.xact_start IS NULL OR s.kind <> 'session' THEN '{}'::text[] ELSE ARRAY(SELECT DISTINCT c.relname::text
      FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
      WHERE l.pid = s.pid AND l.locktype = 'relation' AND l.granted
        AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND c.relkind IN ('r', 'p') AND c.relowner = (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user)
      ORDER BY 1 LIMIT 5) END,
    COALESCE(s.listens, false), COALESCE(s.ours, false), s.seen
  FROM s CROSS JOIN m LEFT JOIN b ON b.blocker = s.pid
  WHERE s.xact_start IS NOT NULL OR s.snapshot IS NOT NULL OR s.listens OR s.ours OR b.blocks IS NOT NULL
    OR s.blocked_by <> '{}' OR NOT s.seen
  ORDER BY COALESCE(s.snapshot = m.oldest, false) DESC, b.blocks IS NULL, s.xact_start NULLS LAST, s.ours, s.pid
  LIMIT 500;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_activity TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_activity IS
  'Connections that may hold queues up: open transactions, blockers, listeners and qtop''s own sessions.';

-- fn_queue_session_is(pid, started) → whether the pid still belongs to the client session of this database that began
-- at started. Call it in the statement that sends the signal, because the system reuses pids.
CREATE OR REPLACE FUNCTION public.fn_queue_session_is(p_pid int, p_started timestamptz) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = p_pid AND a.backend_start = p_started
    AND a.datname = current_database() AND a.backend_type = 'client backend');
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_session_is TO :"dead_letter_operator", :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_session_is IS 'Whether a pid still belongs to the session that began at this time.';

-- fn_queue_session_signal(pid, started, signal, actor, reason, dry run) → {audit_id, login, program, state,
-- begun}: writes the audit row of a signal, with outcome asked. begun: when the open transaction of the
-- session began. The caller then sends the signal with its own rights, after this transaction has committed.
-- signal: cancel (ends the statement) or terminate (ends the session). Refused: not_found (the session has
-- ended, or another session has the pid now), right (session_user may not signal sessions of that login: it
-- needs pg_signal_backend or the rights of that login; only a superuser may signal a superuser's session). A
-- dry run writes nothing.
CREATE OR REPLACE FUNCTION public.fn_queue_session_signal(p_pid int, p_started timestamptz, p_signal text, p_actor text,
  p_reason text, p_dry_run boolean) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_target text := format('session %s of %s', p_pid,
    to_char(p_started AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
  v_rule text;
  v_why text;
  v_seen jsonb;
  v_login oid;
BEGIN
  IF p_signal IS NULL OR p_signal NOT IN ('cancel', 'terminate') THEN
    RAISE EXCEPTION 'p_signal must be cancel or terminate' USING ERRCODE = '22023';
  END IF;
  SELECT a.usesysid, jsonb_build_object('login', a.usename, 'program', a.application_name, 'state', a.state,
    'begun', a.xact_start) INTO v_login, v_seen
  FROM pg_stat_activity a WHERE a.pid = p_pid AND a.backend_start = p_started AND a.datname = current_database()
    AND a.backend_type = 'client backend';
  IF v_seen IS NULL THEN
    v_rule := 'not_found';
    v_why := CASE WHEN EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = p_pid AND a.backend_start = p_started
        AND a.backend_type <> 'client backend')
      THEN format('pid %s is a process of the server, not the session of a client', p_pid)
      ELSE format('the session of pid %s has ended: there is nothing to %s', p_pid, p_signal) END;
  ELSIF NOT (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = session_user) AND ((SELECT r.rolsuper FROM pg_roles r
      WHERE r.oid = v_login) OR NOT pg_has_role(session_user, v_login, 'USAGE')
      AND NOT pg_has_role(session_user, 'pg_signal_backend', 'USAGE')) THEN
    v_rule := 'right';
    v_why := format('login %s may not %s a session of login %s; a superuser can GRANT pg_signal_backend TO %s',
      session_user, p_signal, v_seen ->> 'login', quote_ident(session_user));
  END IF;
  RETURN COALESCE(v_seen, '{}') || CASE
    WHEN v_rule IS NOT NULL AND COALESCE(p_dry_run, true)
      THEN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why)
    WHEN v_rule IS NOT NULL
      THEN public.fn_operator_refused(p_action => 'session_' || p_signal, p_target => v_target, p_actor => v_actor,
        p_reason => v_reason, p_rule => v_rule, p_why => v_why)
    WHEN COALESCE(p_dry_run, true) THEN '{}'
    ELSE jsonb_build_object('audit_id', public.fn_operator_audit(
      p_action => 'session_' || p_signal, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_filter => NULL::text, p_frozen_count => 1::bigint, p_before => v_seen, p_after => NULL::jsonb,
      p_outcome => 'asked')) END;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_session_signal TO :"dead_letter_operator", :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_session_signal IS
  'Writes the audit row of a signal to a session; the caller then sends the signal with its own rights.';
