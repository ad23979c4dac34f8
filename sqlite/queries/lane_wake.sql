-- The earliest receipt that holds a lane becomes due, if it waits for its turn.
UPDATE {table receipts} SET next_at = ?4
WHERE status = 'stored' AND next_at IS NULL
  AND seq = (SELECT seq FROM {table receipts} WHERE tenant_id = ?1 AND subscriber = ?2 AND lane = ?3 AND holds = 1 ORDER BY seq LIMIT 1)
