-- A hostile database: every name that qtop's SQL uses has a double, an object of the same name, in
-- schema public and in schema evil, which is first in the search_path of the database and its
-- logins. A call of a double is written to the server's log, which a rollback does not undo. The
-- doubles of functions are made in hostile.go. All doubles belong to role evil, which has the
-- rights of a superuser.
DO $$ BEGIN
  CREATE ROLE evil SUPERUSER;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
  NULL; -- exists already, from another database of the server
END $$;
SET ROLE evil;
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
CREATE FUNCTION evil.hit(p_what pg_catalog.text) RETURNS pg_catalog.bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  RAISE LOG 'qtop-hostile % %', current_database(), p_what;
  RETURN true;
END $$;

-- plant makes doubles with these words as their names.
CREATE FUNCTION evil.plant(p_words pg_catalog.text[]) RETURNS pg_catalog.int8 LANGUAGE plpgsql SET search_path = pg_catalog AS $do$
DECLARE
  r record;
  v_schema text;
  v_types text[] := ARRAY['text', 'name', '"char"', 'int2', 'int4', 'int8', 'float8', 'numeric', 'bool', 'timestamptz', 'timestamp', 'date', 'interval', 'uuid',
    'jsonb', 'json', 'bytea', 'oid', 'xid', 'xid8', 'inet', 'anyarray', 'regclass', 'varchar', 'text[]', 'int8[]', 'uuid[]', 'regrole', 'regnamespace', 'regtype'];
  v_made int8 := 0;
BEGIN
  FOREACH v_schema IN ARRAY ARRAY['evil', 'public'] LOOP
    FOR r IN
      WITH t AS (SELECT x::regtype::oid AS oid FROM unnest(v_types) x)
      SELECT DISTINCT ON (o.oprname, l, rt) o.oprname, l, rt, format_type(o.oprresult, NULL) AS result FROM (
        SELECT oprname, oprleft AS l, oprright AS rt, oprresult, 0 AS own FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace
          AND (oprleft = 0 OR oprleft IN (SELECT oid FROM t)) AND oprright IN (SELECT oid FROM t)
        UNION ALL SELECT oprname, a.x::regtype, b.x::regtype, oprresult, 1 FROM pg_operator, unnest(ARRAY['text', 'varchar', 'name']) a (x), unnest(ARRAY['text', 'varchar', 'name']) b (x)
          WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft = 'text'::regtype AND oprright = 'text'::regtype
        UNION ALL SELECT oprname, a.x::regtype, b.x::regtype, oprresult, 1 FROM pg_operator, unnest(ARRAY['int4', 'int8', 'numeric', 'float8']) a (x), unnest(ARRAY['int4', 'int8', 'numeric', 'float8']) b (x)
          WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft = 'numeric'::regtype AND oprright = 'numeric'::regtype) o
      WHERE o.oprname NOT IN ('=>') AND o.oprresult NOT IN (SELECT oid FROM pg_type WHERE typtype = 'p') ORDER BY 1, 2, 3, o.own
    LOOP
      EXECUTE format('CREATE FUNCTION %I.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', v_schema, 'shadow of ' || r.oprname,
        concat_ws(', ', format_type(NULLIF(r.l, 0), NULL), format_type(r.rt, NULL)), r.result,
        format('BEGIN RAISE LOG ''qtop-hostile %% %%'', pg_catalog.current_database(), %L; RETURN NULL; END', format('operator %s.%s', v_schema, r.oprname)));
      EXECUTE format('CREATE OPERATOR %I.%s (%s RIGHTARG = %s, FUNCTION = %1$I.%5$I)', v_schema, r.oprname,
        'LEFTARG = ' || format_type(NULLIF(r.l, 0), NULL) || ',', format_type(r.rt, NULL), 'shadow of ' || r.oprname);
      v_made := v_made + 1;
    END LOOP;
    FOR r IN SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typelem = 0 AND typname = ANY (p_words) LOOP
      EXECUTE format('CREATE DOMAIN %I.%I AS pg_catalog.%2$I CHECK (evil.hit(%3$L))', v_schema, r.typname, format('type %s.%s', v_schema, r.typname));
      v_made := v_made + 1;
    END LOOP;
    FOR r IN SELECT x FROM unnest(ARRAY['text', 'varchar', 'name', 'int4', 'int8', 'numeric', 'float8', 'bool', 'timestamptz', 'interval', 'uuid', 'jsonb', 'json', 'regclass', 'oid', 'text[]']) x LOOP
      EXECUTE format('CREATE TYPE %I.%I AS ENUM (%L)', v_schema, 'shade of ' || r.x, 'x');
      EXECUTE format('CREATE FUNCTION %I.%I(pg_catalog.%s) RETURNS %1$I.%2$I LANGUAGE plpgsql AS %4$L', v_schema, 'shade of ' || r.x, r.x,
        format('BEGIN RAISE LOG ''qtop-hostile %% %%'', pg_catalog.current_database(), %L; RETURN NULL; END', 'cast of ' || r.x));
      EXECUTE format('CREATE CAST (pg_catalog.%s AS %I.%I) WITH FUNCTION %2$I.%3$I(pg_catalog.%1$s) AS IMPLICIT', r.x, v_schema, 'shade of ' || r.x);
      v_made := v_made + 2;
    END LOOP;
  END LOOP;
  RETURN v_made;
END $do$;

-- plant_relations makes the doubles of tables and views. It runs again when the schema of
-- qtop is installed, for the tables and views of qtop.
CREATE FUNCTION evil.plant_relations(p_words pg_catalog.text[]) RETURNS pg_catalog.void LANGUAGE plpgsql SET search_path = pg_catalog AS $do$
DECLARE
  r record;
  v_schema text;
BEGIN
  FOREACH v_schema IN ARRAY ARRAY['evil', 'public'] LOOP
    FOR r IN SELECT n.nspname, c.relname, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
      AND (n.nspname = 'pg_catalog' AND c.relname = ANY (p_words) OR n.nspname = 'public' AND v_schema = 'evil') ORDER BY 1, 2
    LOOP
      BEGIN
        -- A dependency would prevent dropping the table or its types: use only names, and types of PostgreSQL.
        EXECUTE format('CREATE VIEW %I.%I AS SELECT %3$s WHERE evil.hit(%4$L)', v_schema, r.relname, CASE r.nspname WHEN 'public' THEN (
          SELECT string_agg(format('NULL::%s AS %I', CASE t.typtype WHEN 'e' THEN 'text' ELSE format_type(COALESCE(NULLIF(t.typbasetype, 0), t.oid), NULL) END,
            a.attname), ', ' ORDER BY a.attnum)
          FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped)
          ELSE format('t.* FROM %I.%I t', r.nspname, r.relname) END, format('relation %s.%s', v_schema, r.relname));
        EXECUTE format('GRANT SELECT ON %I.%I TO PUBLIC', v_schema, r.relname);
      EXCEPTION WHEN invalid_table_definition OR duplicate_table THEN
        NULL; -- a column type that no view may have
      END;
    END LOOP;
  END LOOP;
END $do$;
