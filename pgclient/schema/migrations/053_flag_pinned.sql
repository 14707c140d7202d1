-- Whether an operator chose the value of a flag: fn_dot_config_seed. Of flags set before, that is known from
-- updated_by; one that will revert to its default counts as not chosen. By a type change, because an UPDATE would fire
-- the triggers, which stamp and audit.

CREATE FUNCTION public.fn_flag_pinned(p_key text, p_updated_at timestamptz, p_updated_by text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT p_updated_by <> 'migration' AND NOT EXISTS (SELECT FROM public.dot_config_revert v
    JOIN public.dot_config_rule r USING (key)
    WHERE v.key = p_key AND v.set_at = p_updated_at AND v.revert_to = r.default_value)
$$;

ALTER TABLE public.dot_config ADD COLUMN pinned boolean NOT NULL DEFAULT false;

ALTER TABLE public.dot_config ALTER COLUMN pinned TYPE boolean
  USING public.fn_flag_pinned(key, updated_at, updated_by);

DROP FUNCTION public.fn_flag_pinned(text, timestamptz, text);

---- create above / drop below ----

ALTER TABLE public.dot_config DROP COLUMN pinned;
