-- Records of qtop migrate: code number, objects, data moves, roles. Every login may read them.

COMMENT ON TABLE public.qtop_schema_code IS
  'The installed code: its number, the oldest code number whose programs it supports, and the hash of code and seeds. '
  'recorded_form: major version of the server and form of the hashes in qtop_schema_object; hashes of different forms '
  'cannot be compared. One row, written by qtop migrate.';
GRANT SELECT ON public.qtop_schema_code, public.qtop_schema_object, public.qtop_schema_move, public.qtop_schema_role
  TO PUBLIC;

COMMENT ON TABLE public.qtop_schema_object IS
  'Each installed function, view, trigger, right and comment. source: hash of the text that declared it; installed: '
  'hash of its definition in the catalogue, which reveals changes made by hand. Written by qtop migrate.';

COMMENT ON TABLE public.qtop_schema_move IS
  'Bulk data moves after a migration: how many rows each has moved; ended_at NULL = not done yet.';

COMMENT ON TABLE public.qtop_schema_role IS
  'Which role of the cluster is used for each logical name, and whether migrate up created it, found it in use by an '
  'installed qtop (granted), or was told to use it (adopted). Written by qtop migrate.';

-- fn_queue_role_name(logical name) → the name of the role in this cluster, with the prefix of this database; a name
-- that is no logical role name is returned unchanged. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_role_name(p_name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN CASE p_name
    WHEN 'queue_owner' THEN :'queue_owner' WHEN 'queue_viewer' THEN :'queue_viewer'
    WHEN 'dot_executor' THEN :'dot_executor' WHEN 'workflow_admin' THEN :'workflow_admin'
    WHEN 'dead_letter_operator' THEN :'dead_letter_operator' WHEN 'event_ingest_writer' THEN :'event_ingest_writer'
    WHEN 'router_worker' THEN :'router_worker' WHEN 'saga_orchestrator' THEN :'saga_orchestrator'
    WHEN 'webhook_worker' THEN :'webhook_worker' WHEN 'lease_reset_cleaner' THEN :'lease_reset_cleaner'
    WHEN 'subscription_admin' THEN :'subscription_admin' ELSE p_name END;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_role_name IS
  'The role of the cluster that is used for a logical name. Internal.';
