-- Records of one operation that are due: enqueued ones, and doubts whose next probe has come.
SELECT {packed}
FROM {table records} INDEXED BY {name records_due}
WHERE operation = ?2 AND due_at IS NOT NULL AND due_at <= ?1
  AND (state = 'pending' AND lease_until <= ?1 AND (started_at IS NULL OR on_crash = 'rerun')
    OR state = 'in_doubt' AND on_crash = 'probe')
ORDER BY due_at LIMIT ?3
