-- Sequences that would draw ids which exist, as after a restore of some tables or a move by logical replication, which
-- carries no sequence: the next insert then fails with a duplicate key.

-- fn_queue_sequences_behind() → (sequence, table_name, id_column, draws, largest): the sequences whose next id is not
-- above the largest of the table. Names are quoted for a statement. A standby shows up to 32 ids more than were drawn.
CREATE OR REPLACE FUNCTION public.fn_queue_sequences_behind()
RETURNS TABLE (sequence text, table_name text, id_column text, draws bigint, largest bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  v_of record;
BEGIN
  FOR v_of IN
    SELECT s.relname AS drawn, t.relname AS of, a.attname AS id
    FROM pg_class t
    JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef f ON f.adrelid = t.oid AND f.adnum = a.attnum
    JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass
      AND (d.classid = 'pg_class'::regclass AND d.refobjid = t.oid AND d.refobjsubid = a.attnum AND d.deptype = 'i'
        OR d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid)
    JOIN pg_class s ON s.relkind = 'S'
      AND s.oid = CASE d.classid WHEN 'pg_class'::regclass THEN d.objid ELSE d.refobjid END
    WHERE t.relnamespace = 'public'::regnamespace AND t.relkind IN ('r', 'p') AND NOT t.relispartition
      AND s.relnamespace = t.relnamespace AND s.relowner = t.relowner
      AND t.relowner = (SELECT o.oid FROM pg_roles o WHERE o.rolname = current_user)
    ORDER BY 1
  LOOP
    sequence := format('public.%I', v_of.drawn);
    table_name := format('public.%I', v_of.of);
    id_column := quote_ident(v_of.id);
    EXECUTE format('SELECT s.last_value + s.is_called::int4, t.largest FROM public.%I s, '
      '(SELECT max(m.%I)::bigint AS largest FROM public.%I m) t', v_of.drawn, v_of.id, v_of.of) INTO draws, largest;
    IF draws <= largest THEN
      RETURN NEXT;
    END IF;
  END LOOP;
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_sequences_behind TO :"queue_viewer", :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_sequences_behind IS
  'Sequences that would draw ids which exist in their tables: the next insert fails with a duplicate key.';
