-- One message came again so many times.
UPDATE {table receipts} SET seen = seen + ?4, seen_at = ?5 WHERE tenant_id = ?1 AND subscriber = ?2 AND receipt_key = ?3
