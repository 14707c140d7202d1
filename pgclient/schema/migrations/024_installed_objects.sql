-- What is installed: the number and hash of the code, each object of it with what the catalogue made of it, and the
-- bulk moves of data that have ended. Written by `qtop migrate` alone.

CREATE TABLE public.qtop_schema_code (
  one            boolean PRIMARY KEY DEFAULT true CHECK (one),
  code           int NOT NULL CHECK (code > 0),
  serves         int NOT NULL CHECK (serves BETWEEN 0 AND code),
  hash           text NOT NULL,
  seeds          text NOT NULL,
  recorded_form  text NOT NULL,
  installed_at   timestamptz NOT NULL,
  installed_by   text NOT NULL
);

CREATE TABLE public.qtop_schema_object (
  kind      text NOT NULL CHECK (kind IN ('function', 'view', 'trigger', 'rights', 'comment')),
  name      text NOT NULL,
  source    text NOT NULL,
  installed text NOT NULL,
  PRIMARY KEY (kind, name)
);

CREATE TABLE public.qtop_schema_move (
  name     text PRIMARY KEY,
  moved    bigint NOT NULL DEFAULT 0,
  ended_at timestamptz
);

---- create above / drop below ----

DROP TABLE public.qtop_schema_move;
DROP TABLE public.qtop_schema_object;
DROP TABLE public.qtop_schema_code;
