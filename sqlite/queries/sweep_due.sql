-- What is over, the oldest end first: results, failures, unused issued keys, tombstones.
SELECT tenant_id, operation, idempotency_key, state FROM (
  SELECT * FROM (
    SELECT tenant_id, operation, idempotency_key, state, expires_at AS over
    FROM {table records} INDEXED BY {name records_end}
    WHERE state IN ('issued', 'completed', 'failed') AND expires_at <= ?1 AND format <= ?2
    ORDER BY expires_at LIMIT ?3)
  UNION ALL
  SELECT * FROM (
    SELECT tenant_id, operation, idempotency_key, state, gone_at AS over
    FROM {table records} INDEXED BY {name records_gone}
    WHERE state = 'expired' AND gone_at IS NOT NULL AND gone_at <= ?1 AND format <= ?2
    ORDER BY gone_at LIMIT ?3))
ORDER BY over LIMIT ?3
