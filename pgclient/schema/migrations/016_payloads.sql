-- No tables: the functions that came with this number are in code/payloads.sql.

---- create above / drop below ----
