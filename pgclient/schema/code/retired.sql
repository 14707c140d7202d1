-- Objects that programs of this release no longer use, kept for running programs of the release before. The next
-- release removes them and names them in release.txt.

-- Retired by code 1: a part of v_queue_health, which has one definition now.
CREATE OR REPLACE VIEW public.v_queue_health_rest AS
SELECT * FROM public.v_queue_health h
WHERE h.source NOT LIKE 'dead\_letter\_%' AND h.source NOT LIKE 'backlog\_%'
  AND NOT (h.source = 'cursor_held' AND h.subject <> 'webhook_router');
COMMENT ON VIEW public.v_queue_health_rest IS
  'Retired: v_queue_health without backlogs, dead letters and held routes. Read v_queue_health.';
GRANT SELECT ON public.v_queue_health_rest TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
