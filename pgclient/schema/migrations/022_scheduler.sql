-- No tables: the functions that came with this number are in code/scheduler.sql.

---- create above / drop below ----
