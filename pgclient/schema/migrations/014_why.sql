-- No tables: the functions that came with this number are in code/why.sql.

---- create above / drop below ----
