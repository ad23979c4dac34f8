DELETE FROM {table receipts} WHERE tenant_id = ?1 AND subscriber = ?2 AND receipt_key = ?3 AND (?4 = 0 OR rev = ?4)
