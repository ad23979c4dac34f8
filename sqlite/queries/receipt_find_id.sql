-- Of one message id.
SELECT tenant_id, subscriber, receipt_key, seq, rev, status, reason, holds, source, message_id, message_type, lane, version, headers, CASE WHEN ?5 THEN NULL ELSE body END, position, message_at, attempts, failures, received_at, changed_at, next_at, sealed, seen, seen_at, body_until, gone_at FROM {table receipts}
WHERE subscriber = ?1 AND seq > ?2 AND message_id = ?9 AND (length(?3) = 0 OR tenant_id = ?3) AND (length(?4) = 0 OR lane = ?4)
  AND (?6 IS NULL OR received_at >= ?6) AND (?7 IS NULL OR received_at < ?7)
ORDER BY seq LIMIT ?8
