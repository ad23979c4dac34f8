-- Occupies one more digest; a digest of another record is a violation of the primary key.
INSERT INTO {table records} (tenant_id, operation, idempotency_key, alias_of)
SELECT ?1, ?2, ?3, ?4
WHERE NOT EXISTS (SELECT 1 FROM {table records}
  WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = ?3 AND alias_of = ?4)
