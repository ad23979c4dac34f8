UPDATE {table receipts} SET rev = rev + 1, attempts = attempts + 1, changed_at = ?2, next_at = ?3 WHERE seq = ?1
