-- Which database this is: a copy of it can tell that it is one.

-- database_name is only shown; NULL = the name of the original is not known.
CREATE TABLE public.queue_identity (
  one               boolean PRIMARY KEY DEFAULT true CHECK (one),
  system_identifier bigint NOT NULL,
  database_oid      oid NOT NULL,
  database_name     text,
  recorded_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  recorded_by       text NOT NULL,
  reason            text NOT NULL CHECK (reason <> '')
);

-- The first identity is that of the database in which this runs, unless the routers and the event classes have never
-- run in this cluster but in another one: then the rows were restored from a dump, and are a copy already.
INSERT INTO public.queue_identity (system_identifier, database_oid, database_name, recorded_by, reason)
SELECT COALESCE(o.system_identifier, s.system_identifier), d.oid,
  CASE WHEN o.system_identifier IS NULL THEN d.datname END, session_user, 'recorded by the first qtop migrate up'
FROM pg_catalog.pg_control_system() s
JOIN pg_catalog.pg_database d ON d.datname = current_database()
LEFT JOIN LATERAL (
  SELECT e.system_identifier FROM public.event_class_state e
  WHERE e.system_identifier <> s.system_identifier
    AND NOT EXISTS (SELECT FROM public.router_offsets r WHERE r.system_identifier = s.system_identifier)
    AND NOT EXISTS (SELECT FROM public.iu_route_worker_cursor c WHERE c.system_identifier = s.system_identifier)
  LIMIT 1) o ON true;

---- create above / drop below ----

DROP TABLE public.queue_identity;
