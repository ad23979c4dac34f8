-- The record under a digest, which may be an alias of it.
SELECT {packed}
FROM {table records}
WHERE tenant_id = ? AND operation = ? AND idempotency_key = coalesce(
  (SELECT alias_of FROM {table records} WHERE tenant_id = ? AND operation = ? AND idempotency_key = ?), ?)
