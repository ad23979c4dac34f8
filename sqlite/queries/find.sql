-- The record under a digest, which may be an alias of it.
SELECT {columns}
FROM {table records}
WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = coalesce(
  (SELECT alias_of FROM {table records} WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = ?3), ?3)
