-- The highest place of a row: about as many as there are.
SELECT coalesce(max(rowid), 0) FROM {table records}
