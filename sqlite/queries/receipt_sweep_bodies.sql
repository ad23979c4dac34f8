-- Bodies and headers that are over go; what they belong to stays.
UPDATE {table receipts} SET body = NULL, headers = NULL, sealed = ''
WHERE seq IN (SELECT seq FROM {table receipts} WHERE subscriber = ?1 AND body_until IS NOT NULL AND body IS NOT NULL AND body_until <= ?2 LIMIT ?3)
