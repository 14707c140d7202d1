-- Flags that a person set only for a while keep that person in updated_by, and still follow when a release changes
-- their default: fn_dot_config_seed. This is a table, because producers have dot_config locked.

CREATE TABLE public.dot_config_follows (key text PRIMARY KEY);

INSERT INTO public.dot_config_follows (key)
SELECT c.key FROM public.dot_config c JOIN public.dot_config_revert v ON v.key = c.key AND v.set_at = c.updated_at
JOIN public.dot_config_rule r ON r.key = c.key AND r.default_value = v.revert_to;

---- create above / drop below ----

DROP TABLE public.dot_config_follows;
