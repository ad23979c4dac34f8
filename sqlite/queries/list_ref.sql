-- The records whose digest begins with a reference: one, but for a chance of 2^-128. An alias stands for its record.
SELECT {packed -response_body -snapshot}
FROM {table records} AS r
WHERE EXISTS (
  SELECT 1 FROM {table records} AS n
  WHERE n.idempotency_key >= ?1 AND n.idempotency_key < ?2
    AND r.tenant_id = n.tenant_id AND r.operation = n.operation AND r.idempotency_key = coalesce(n.alias_of, n.idempotency_key))
  AND r.alias_of IS NULL
ORDER BY tenant_id, operation, idempotency_key
