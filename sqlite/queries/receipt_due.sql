SELECT tenant_id, subscriber, receipt_key, seq, rev, status, reason, holds, source, message_id, message_type, lane, version, headers, body, position, message_at, attempts, failures, received_at, changed_at, next_at, sealed, seen, seen_at, body_until, gone_at FROM {table receipts}
WHERE subscriber = ?1 AND next_at IS NOT NULL AND next_at <= ?2 ORDER BY next_at, seq LIMIT ?3
