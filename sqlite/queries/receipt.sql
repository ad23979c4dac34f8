SELECT tenant_id, subscriber, receipt_key, seq, rev, status, reason, holds, source, message_id, message_type, lane, version, headers, body, position, message_at, attempts, failures, received_at, changed_at, next_at, sealed, seen, seen_at, body_until, gone_at FROM {table receipts}
WHERE tenant_id = ?1 AND subscriber = ?2 AND receipt_key = ?3
