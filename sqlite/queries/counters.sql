SELECT start, process, data FROM {table counters} WHERE span = ?1 AND start >= ?2 ORDER BY start, process
