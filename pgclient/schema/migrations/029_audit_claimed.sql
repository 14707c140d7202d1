-- What the program of an operator says about who runs it, beside what the session proves.

ALTER TABLE public.queue_operator_action ADD COLUMN claimed jsonb;

---- create above / drop below ----

ALTER TABLE public.queue_operator_action DROP COLUMN claimed;
