-- The successor of a revision; 0 rows: it has another one, or is gone.
UPDATE {table receipts} SET rev = rev + 1, status = ?4, reason = ?5, holds = ?6, attempts = ?7, failures = ?8, changed_at = ?9, next_at = ?10, body_until = ?12, gone_at = ?13
WHERE tenant_id = ?1 AND subscriber = ?2 AND receipt_key = ?3 AND rev = ?11
