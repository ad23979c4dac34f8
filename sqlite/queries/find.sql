-- The record under a digest, which may be an alias of it. The last column tells an empty body from none: modernc returns
-- nil for both.
SELECT {columns}, response_body IS NOT NULL
FROM {table records}
WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = coalesce(
  (SELECT alias_of FROM {table records} WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = ?3), ?3)
