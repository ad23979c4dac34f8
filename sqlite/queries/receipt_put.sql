-- A new receipt; 0 rows: there is one.
INSERT INTO {table receipts} (tenant_id, subscriber, receipt_key, rev, status, reason, holds, source, message_id, message_type, lane, version,
  headers, body, position, message_at, attempts, failures, received_at, changed_at, next_at, sealed, body_until, gone_at)
VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?18, ?19, ?20, ?21, ?22)
ON CONFLICT (tenant_id, subscriber, receipt_key) DO NOTHING
