-- A lane's version and since when it is there, and whether a receipt before that of the key (any, if the key has none) holds it.
SELECT (SELECT version FROM {table lanes} WHERE tenant_id = ?1 AND subscriber = ?2 AND lane = ?3),
  (SELECT created_at FROM {table lanes} WHERE tenant_id = ?1 AND subscriber = ?2 AND lane = ?3),
  (SELECT changed_at FROM {table lanes} WHERE tenant_id = ?1 AND subscriber = ?2 AND lane = ?3),
  EXISTS (SELECT 1 FROM {table receipts} WHERE tenant_id = ?1 AND subscriber = ?2 AND lane = ?3 AND holds = 1 AND receipt_key <> ?4
    AND seq < COALESCE((SELECT seq FROM {table receipts} WHERE tenant_id = ?1 AND subscriber = ?2 AND receipt_key = ?4), 9223372036854775807))
