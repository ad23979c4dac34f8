-- Failures, unused issued keys and tombstones that are over.
DELETE FROM {table records}
WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = ?3 AND alias_of IS NULL
  AND (state IN ('issued', 'failed') AND expires_at <= ?4 OR state = 'expired' AND gone_at <= ?4)
