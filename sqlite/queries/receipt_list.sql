SELECT tenant_id, subscriber, receipt_key, seq, rev, status, reason, holds, source, message_id, message_type, lane, version, headers, CASE WHEN ?7 THEN NULL ELSE body END, position, message_at, attempts, failures, received_at, changed_at, next_at FROM {table receipts}
WHERE subscriber = ?1 AND seq > ?2 AND (length(?3) = 0 OR tenant_id = ?3) AND (length(?4) = 0 OR lane = ?4) AND (length(?5) = 0 OR receipt_key = ?5)
  AND (?6 = '' OR instr(?6, ',' || status || ',') > 0)
ORDER BY seq LIMIT ?8
