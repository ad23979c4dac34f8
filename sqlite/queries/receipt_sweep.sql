-- Receipts that are over go.
DELETE FROM {table receipts} WHERE seq IN (SELECT seq FROM {table receipts} WHERE subscriber = ?1 AND gone_at IS NOT NULL AND gone_at <= ?2 LIMIT ?3)
