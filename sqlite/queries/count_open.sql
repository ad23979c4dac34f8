-- Running and doubtful records, by their own indexes: how many, and the oldest.
SELECT what, count(*), min(since), tenant_id, operation, idempotency_key FROM (
  SELECT * FROM (
    SELECT CASE WHEN lease_until <= ?1 AND started_at IS NOT NULL AND on_crash = 'hold' THEN 'in_doubt' ELSE 'pending' END AS what,
      CASE WHEN lease_until <= ?1 AND started_at IS NOT NULL AND on_crash = 'hold' THEN lease_until ELSE claimed_at END AS since,
      tenant_id, operation, idempotency_key
    FROM {table records} INDEXED BY {name records_lease}
    WHERE state = 'pending' AND alias_of IS NULL AND tenant_id >= ?2 AND tenant_id <= ?3 AND (?4 = '' OR operation = CAST(?4 AS BLOB))
    ORDER BY lease_until LIMIT ?5)
  UNION ALL
  SELECT * FROM (
    SELECT 'in_doubt', changed_at, tenant_id, operation, idempotency_key
    FROM {table records} INDEXED BY {name records_doubt}
    WHERE state = 'in_doubt' AND alias_of IS NULL AND tenant_id >= ?2 AND tenant_id <= ?3 AND (?4 = '' OR operation = CAST(?4 AS BLOB))
    ORDER BY changed_at LIMIT ?5))
GROUP BY what
