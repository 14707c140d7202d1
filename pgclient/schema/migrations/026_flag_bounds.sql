-- The bounds of numeric flags.

ALTER TABLE public.dot_config_rule ADD COLUMN lowest int, ADD COLUMN highest int;

---- create above / drop below ----

ALTER TABLE public.dot_config_rule DROP COLUMN highest, DROP COLUMN lowest;
