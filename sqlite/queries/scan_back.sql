-- When the first record at or after a place of the table was created.
SELECT created_at FROM {table records} WHERE rowid > ?1 ORDER BY rowid LIMIT 1
