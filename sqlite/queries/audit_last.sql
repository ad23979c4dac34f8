-- The row that was added last; the write lock is held.
SELECT max(id) FROM {table audit}
