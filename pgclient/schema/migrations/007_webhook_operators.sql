-- No tables: what operators do with webhooks came with this number; it is in code/webhook_operators.sql.

---- create above / drop below ----
