-- No tables: the functions of webhook delivery, which came with this number, are in code/webhook_*.sql.

---- create above / drop below ----
