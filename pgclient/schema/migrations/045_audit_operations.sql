-- Audit rows know the bulk operation that wrote them, so that its batches fold into one row and hide nobody's action.

ALTER TABLE public.queue_operator_action ADD COLUMN operation_id bigint, ADD COLUMN batch bigint,
  ADD COLUMN batch_items bigint;

-- all rows of an operation, and its last batch
CREATE INDEX ix_queue_operator_action_operation ON public.queue_operator_action (operation_id, id)
  WHERE operation_id IS NOT NULL;
-- the audit with batches folded: the first of each operation and action stands for all
CREATE INDEX ix_queue_operator_action_folded ON public.queue_operator_action (id) WHERE COALESCE(batch, 1) = 1;
-- what people did: fn_snapshot_actions has these conditions
CREATE INDEX ix_queue_operator_action_people ON public.queue_operator_action (id)
  WHERE batch IS NULL AND outcome !~~ 'refused%' AND action <> ALL (ARRAY['mark', 'flag_revert', 'bulk_brake',
    'webhook_subscription_write', 'job_subscription_write', 'event_subscription_write']);

---- create above / drop below ----

DROP INDEX public.ix_queue_operator_action_people;
DROP INDEX public.ix_queue_operator_action_folded;
DROP INDEX public.ix_queue_operator_action_operation;
ALTER TABLE public.queue_operator_action DROP COLUMN operation_id, DROP COLUMN batch, DROP COLUMN batch_items;
