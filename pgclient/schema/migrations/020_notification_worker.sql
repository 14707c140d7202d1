-- No tables: the functions that came with this number are in code/notification_worker.sql.

---- create above / drop below ----
