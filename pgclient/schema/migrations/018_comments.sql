-- No tables: the comments that came with this number stand with their tables in code/.

---- create above / drop below ----
