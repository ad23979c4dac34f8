SELECT value FROM {table meta} WHERE name = ?1
