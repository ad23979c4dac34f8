DELETE FROM {table counters} WHERE span = ?1 AND start < ?2
