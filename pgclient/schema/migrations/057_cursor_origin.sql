-- Which transaction ids a cursor compares: code/routing_batches.sql.

ALTER TABLE public.queue_cursor ADD COLUMN origin text;

---- create above / drop below ----

ALTER TABLE public.queue_cursor DROP COLUMN origin;
