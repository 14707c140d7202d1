-- PostgreSQL evaluates a CHECK of a table at every UPDATE of a row, so each change of a job read its payload, and a
-- payload that could not be read stopped every claim of its executor. fn_job_queue_counted now checks payloads that may
-- be stored apart from their row, when they are inserted. Only the domain changes: job_queue is not locked.

ALTER DOMAIN public.job_payload DROP CONSTRAINT chk_job_payload;
ALTER DOMAIN public.job_payload ADD CONSTRAINT chk_job_payload CHECK (pg_column_size(VALUE) > 256
  OR jsonb_typeof(VALUE) = 'object' AND NOT VALUE ?| :'denied_keys'::text[]);

---- create above / drop below ----

ALTER DOMAIN public.job_payload DROP CONSTRAINT chk_job_payload;
ALTER DOMAIN public.job_payload ADD CONSTRAINT chk_job_payload CHECK (jsonb_typeof(VALUE) = 'object'
  AND NOT VALUE ?| :'denied_keys'::text[]);
