-- A result whose retention is over becomes its tombstone.
UPDATE {table records} SET state = 'expired', changed_at = ?4, response_headers = NULL, response_body = NULL,
  body_kept = 0, request_detail = NULL, snapshot = NULL, note = NULL, trace = NULL
WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = ?3 AND alias_of IS NULL
  AND state = 'completed' AND expires_at <= ?4
