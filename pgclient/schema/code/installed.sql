-- The record of what qtop migrate installed: code number, objects, data moves. Every login may read it.

COMMENT ON TABLE public.qtop_schema_code IS
  'Which code is installed: its number, the oldest code number whose programs it serves, the hash of code and '
  'seeds. recorded_form: major version of the server and form of the hashes in qtop_schema_object, which compare '
  'with none of another form. One row, written by qtop migrate.';
GRANT SELECT ON public.qtop_schema_code, public.qtop_schema_object, public.qtop_schema_move TO PUBLIC;

COMMENT ON TABLE public.qtop_schema_object IS
  'Each installed function, view, trigger, right and comment: source = hash of the text that declared it, installed '
  '= hash of what the catalogue made of it, by which a change by hand is seen. Written by qtop migrate.';

COMMENT ON TABLE public.qtop_schema_move IS
  'Bulk moves of data after a migration: how many rows each has moved; ended_at NULL = not done yet.';
