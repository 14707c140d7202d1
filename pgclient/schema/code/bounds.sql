-- How long the texts and lists may be that a login hands to our functions or writes into our tables. This is the list;
-- what is not in it is bounded by a CHECK, by the type of its column or by the function that takes it (people and
-- reasons: audit.sql; ids: ids.sql; units: units.sql). Payloads have bounds of their own.

-- fn_text_bound('column most', …): refuses a new or changed value of more than so many characters, of a list or an
-- object those of its text. Rows of older releases keep what they have and may be updated beside it.
CREATE OR REPLACE FUNCTION public.fn_text_bound() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_new jsonb := to_jsonb(NEW);
  v_old jsonb := to_jsonb(OLD); -- NULL at an INSERT
  v_column text;
  v_most int;
BEGIN
  FOR v_arg IN 0 .. TG_NARGS - 1 LOOP
    v_column := split_part(TG_ARGV[v_arg], ' ', 1);
    v_most := split_part(TG_ARGV[v_arg], ' ', 2)::int;
    IF length(v_new ->> v_column) > v_most AND v_new -> v_column IS DISTINCT FROM v_old -> v_column THEN
      RAISE EXCEPTION '% must have at most % characters, not %: shorten it', v_column, v_most,
        length(v_new ->> v_column)
        USING ERRCODE = '22023', DETAIL = format('column %s of table %s', v_column, TG_TABLE_NAME);
    END IF;
  END LOOP;
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

-- Tables with many rows: one whose texts are all short together, in bytes, is not looked at.
CREATE OR REPLACE TRIGGER trg_event_outbox_bound BEFORE INSERT ON public.event_outbox FOR EACH ROW
  WHEN (octet_length(concat(NEW.event_type, NEW.event_stream, NEW.event_subject_table, NEW.event_subject_ref,
    NEW.canonical_address, NEW.actor_ref, NEW.source_system, NEW.correlation_id, NEW.payload_classification)) > 200)
  EXECUTE FUNCTION public.fn_text_bound('event_type 200', 'event_stream 200', 'event_subject_table 200',
    'event_subject_ref 500', 'canonical_address 500', 'actor_ref 200', 'source_system 200', 'correlation_id 200',
    'payload_classification 200');
CREATE OR REPLACE TRIGGER trg_job_queue_bound BEFORE INSERT ON public.job_queue FOR EACH ROW
  WHEN (octet_length(NEW.actor) > 200) EXECUTE FUNCTION public.fn_text_bound('actor 200');
