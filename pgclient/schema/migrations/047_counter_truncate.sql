-- At the end of a VACUUM, also of autovacuum, PostgreSQL gives empty pages at the end of a table back to the file
-- system and for that locks the table against everybody. Statements of producers wait for no lock, and could not count
-- there. The table keeps its pages and uses them again; it is read by index. The setting waits for a VACUUM, not for
-- producers.

ALTER TABLE public.queue_counter_recent SET (vacuum_truncate = off);

---- create above / drop below ----

ALTER TABLE public.queue_counter_recent RESET (vacuum_truncate);
