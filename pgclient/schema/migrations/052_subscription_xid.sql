-- Which of a webhook subscription and a webhook event was written first does not follow from their times when the
-- clock of the server is set back: v_webhook_recipient.

ALTER TABLE public.subscriptions ADD COLUMN created_xid xid8 NOT NULL DEFAULT pg_current_xact_id();
ALTER TABLE public.router_offsets ADD COLUMN restored_subscription_id bigint;

---- create above / drop below ----

ALTER TABLE public.router_offsets DROP COLUMN restored_subscription_id;
ALTER TABLE public.subscriptions DROP COLUMN created_xid;
