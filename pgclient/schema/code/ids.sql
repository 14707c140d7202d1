-- Valid ids of executors, hosts, job subscriptions and consumers: ids that people can type, and that can be displayed
-- and put into commands.

-- fn_id_check(column…): trigger function that refuses a new row with an invalid id. An invalid id that a row of an
-- older release already has stays accepted, so that such an executor or host can continue.
CREATE OR REPLACE FUNCTION public.fn_id_check() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_id text;
  v_known boolean;
BEGIN
  FOR v_arg IN 0 .. TG_NARGS - 1 LOOP
    EXECUTE format('SELECT ($1).%I::text', TG_ARGV[v_arg]) USING NEW INTO v_id;
    CONTINUE WHEN v_id IS NULL OR v_id ~ '^[A-Za-z0-9][A-Za-z0-9._:@/-]*$' AND length(v_id) <= 200;
    EXECUTE format('SELECT EXISTS (SELECT FROM public.%I t WHERE t.%I = $1)', TG_TABLE_NAME, TG_ARGV[v_arg])
      USING v_id INTO v_known;
    IF NOT v_known THEN
      RAISE EXCEPTION '% "%" must match ^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$', replace(TG_ARGV[v_arg], '_', ' '),
        regexp_replace(left(v_id, 60), '[^ -~]', '?', 'g')
        USING ERRCODE = '22023', HINT = 'choose an id of letters, digits and . _ : @ / -';
    END IF;
  END LOOP;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_id_check IS
  'Trigger function: refuses new ids that cannot be typed, displayed or put into commands unquoted.';

CREATE OR REPLACE TRIGGER trg_queue_heartbeat_id BEFORE INSERT ON public.queue_heartbeat
  FOR EACH ROW EXECUTE FUNCTION public.fn_id_check('executor_id');
CREATE OR REPLACE TRIGGER trg_queue_host_id BEFORE INSERT ON public.queue_host
  FOR EACH ROW EXECUTE FUNCTION public.fn_id_check('host_id');
CREATE OR REPLACE TRIGGER trg_job_subscription_id BEFORE INSERT ON public.job_subscription
  FOR EACH ROW EXECUTE FUNCTION public.fn_id_check('executor_id');
CREATE OR REPLACE TRIGGER trg_consumer_registry_id BEFORE INSERT ON public.consumer_registry
  FOR EACH ROW EXECUTE FUNCTION public.fn_id_check('consumer_id');

-- v_queue_odd_id: ids of rows from older releases that fn_id_check would refuse in a new row.
CREATE OR REPLACE VIEW public.v_queue_odd_id AS
SELECT i.kind, i.id FROM (
  SELECT 'executor' AS kind, h.executor_id AS id FROM public.queue_heartbeat h
  UNION SELECT 'executor', s.executor_id FROM public.job_subscription s
  UNION SELECT 'host', q.host_id FROM public.queue_host q
  UNION SELECT 'consumer', c.consumer_id FROM public.consumer_registry c) i
WHERE NOT (i.id ~ '^[A-Za-z0-9][A-Za-z0-9._:@/-]*$' AND length(i.id) <= 200);
COMMENT ON VIEW public.v_queue_odd_id IS
  'Ids of executors, hosts and consumers that older releases accepted and new rows may not have.';
COMMENT ON COLUMN public.v_queue_odd_id.kind IS 'executor, host or consumer';
GRANT SELECT ON public.v_queue_odd_id TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";
