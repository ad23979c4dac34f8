-- find without the body.
SELECT {packed -response_body}
FROM {table records}
WHERE tenant_id = ? AND operation = ? AND idempotency_key = coalesce(
  (SELECT alias_of FROM {table records} WHERE tenant_id = ? AND operation = ? AND idempotency_key = ?), ?)
