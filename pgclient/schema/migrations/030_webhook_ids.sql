-- The webhook-id of a delivery. Sagas that are there keep NULL, which stands for the id that they were sent with:
-- qtop_<event>_<subscription>. No row is rewritten.

ALTER TABLE public.webhook_delivery_sagas ADD COLUMN webhook_id uuid;
ALTER TABLE public.webhook_delivery_sagas ALTER COLUMN webhook_id SET DEFAULT gen_random_uuid();

---- create above / drop below ----

DROP TRIGGER trg_saga_webhook_id ON public.webhook_delivery_sagas;
ALTER TABLE public.webhook_delivery_sagas DROP COLUMN webhook_id;
