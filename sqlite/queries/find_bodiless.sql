-- find without the body.
SELECT {columns -response_body}
FROM {table records}
WHERE tenant_id = ? AND operation = ? AND idempotency_key = coalesce(
  (SELECT alias_of FROM {table records} WHERE tenant_id = ? AND operation = ? AND idempotency_key = ?), ?)
