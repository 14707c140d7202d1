-- Bounds of the texts and lists that a login passes to functions of qtop or writes into its tables. Texts that are not
-- listed here are bounded by a CHECK, by the type of their column or by the function that has them as an argument
-- (actors and reasons: audit.sql; ids: ids.sql; information units: information_units.sql). Payloads have separate
-- bounds.

-- fn_index_fits(names, values): raises 22023 if the values of one index entry have more than 2500 bytes together. A
-- btree entry has at most 2704 bytes; without this check PostgreSQL would raise an error that names only the index.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_index_fits(p_names text[], p_values text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_bytes int := octet_length(array_to_string(p_values, ''));
BEGIN
  IF v_bytes > 2500 THEN
    RAISE EXCEPTION '% must together have at most 2500 bytes, not %: shorten one', public.fn_words(p_names, 'and'),
      v_bytes USING ERRCODE = '22023';
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_index_fits IS 'Refuses texts that do not fit into an index entry together. Internal.';

-- fn_text_bounds_hold(table, new row, old row or NULL, bounds): raises 22023 for a new or changed value that has more
-- characters than its bound; a bound is 'column characters'. A list or an object is measured as its text. Internal.
CREATE OR REPLACE FUNCTION public.fn_text_bounds_hold(p_table text, p_new jsonb, p_old jsonb, p_bounds text[])
RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_bound text;
  v_column text;
  v_most int;
BEGIN
  FOREACH v_bound IN ARRAY p_bounds LOOP
    v_column := split_part(v_bound, ' ', 1);
    v_most := split_part(v_bound, ' ', 2)::int;
    IF length(p_new ->> v_column) > v_most AND p_new -> v_column IS DISTINCT FROM p_old -> v_column THEN
      RAISE EXCEPTION '% must have at most % characters, not %: shorten it', v_column, v_most,
        length(p_new ->> v_column)
        USING ERRCODE = '22023', DETAIL = format('column %s of table %s', v_column, p_table);
    END IF;
  END LOOP;
END
$fn$;
COMMENT ON FUNCTION public.fn_text_bounds_hold IS
  'Refuses new texts and lists of a row that are longer than their column may hold. Internal.';

-- fn_text_bound('column characters', …): trigger function that applies fn_text_bounds_hold to the row. Rows of older
-- releases keep their longer values, and the other columns of such a row can be updated.
CREATE OR REPLACE FUNCTION public.fn_text_bound() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  PERFORM public.fn_text_bounds_hold(TG_TABLE_NAME::text, to_jsonb(NEW), to_jsonb(OLD), TG_ARGV::text[]);
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_text_bound IS
  'Trigger function: refuses new texts and lists that are longer than their column may hold.';

CREATE OR REPLACE TRIGGER trg_queue_host_bound BEFORE INSERT OR UPDATE OF version, loops, progress
  ON public.queue_host FOR EACH ROW
  EXECUTE FUNCTION public.fn_text_bound('version 200', 'loops 8000', 'progress 65536');
CREATE OR REPLACE TRIGGER trg_queue_heartbeat_bound BEFORE INSERT OR UPDATE OF domain_scope
  ON public.queue_heartbeat FOR EACH ROW EXECUTE FUNCTION public.fn_text_bound('domain_scope 10000');
CREATE OR REPLACE TRIGGER trg_job_subscription_bound BEFORE INSERT OR UPDATE
  ON public.job_subscription FOR EACH ROW
  EXECUTE FUNCTION public.fn_text_bound('notes 2000', 'registered_by 200', 'updated_by 200');
CREATE OR REPLACE TRIGGER trg_event_subscription_bound BEFORE INSERT OR UPDATE
  ON public.event_subscription FOR EACH ROW
  EXECUTE FUNCTION public.fn_text_bound('recipient_ref 200', 'event_domain 51', 'event_type 200', 'event_stream 200',
    'scope_subject_table 200', 'scope_filter 1000');
CREATE OR REPLACE TRIGGER trg_event_type_registry_bound BEFORE INSERT OR UPDATE
  ON public.event_type_registry FOR EACH ROW
  EXECUTE FUNCTION public.fn_text_bound('event_type 200', 'event_stream 200', 'worker_name 200', 'description 2000');
