-- Records of one operation that must be probed: started owners that vanished, and doubts that no probe has a date for.
SELECT {packed}
FROM {table records}
WHERE rowid IN (
  SELECT rowid FROM {table records} INDEXED BY {name records_lease}
  WHERE state = 'pending' AND lease_until <= ?1 AND operation = ?2 AND on_crash = 'probe' AND started_at IS NOT NULL
  UNION ALL
  SELECT rowid FROM {table records} INDEXED BY {name records_doubt}
  WHERE state = 'in_doubt' AND operation = ?2 AND on_crash = 'probe' AND due_at IS NULL)
ORDER BY lease_until LIMIT ?3
