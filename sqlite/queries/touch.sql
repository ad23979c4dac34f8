-- Changes nothing and takes the write lock, so that what is read next cannot be stale.
UPDATE {table meta} SET value = value WHERE 0
