-- No tables: what operators do with jobs came with this number; it is in code/job_operators.sql.

---- create above / drop below ----
