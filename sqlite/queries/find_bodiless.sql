-- find without the body.
SELECT {columns -response_body}
FROM {table records}
WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = coalesce(
  (SELECT alias_of FROM {table records} WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = ?3), ?3)
