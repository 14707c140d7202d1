-- Which roles of the cluster this database uses, and how they came to it. Written by `qtop migrate up` alone.

CREATE TABLE public.qtop_schema_role (
  name        text PRIMARY KEY,
  role        text NOT NULL CHECK (right(role, length(name)) = name),
  origin      text NOT NULL CHECK (origin IN ('made', 'granted', 'adopted')),
  recorded_at timestamptz NOT NULL DEFAULT now(),
  recorded_by text NOT NULL DEFAULT session_user
);

---- create above / drop below ----

DROP TABLE public.qtop_schema_role;
