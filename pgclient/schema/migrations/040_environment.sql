-- A flag that names the environment.

ALTER TABLE public.dot_config_rule DROP CONSTRAINT dot_config_rule_kind_check,
  ADD CONSTRAINT dot_config_rule_kind_check
    CHECK (kind IN ('boolean', 'integer', 'mode', 'schedule', 'environment'));

---- create above / drop below ----

DELETE FROM public.dot_config_rule WHERE kind = 'environment';
ALTER TABLE public.dot_config_rule DROP CONSTRAINT dot_config_rule_kind_check,
  ADD CONSTRAINT dot_config_rule_kind_check CHECK (kind IN ('boolean', 'integer', 'mode', 'schedule'));
