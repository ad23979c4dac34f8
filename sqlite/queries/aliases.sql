-- The digests that stand for a record besides its own.
SELECT idempotency_key FROM {table records}
WHERE tenant_id = ?1 AND operation = ?2 AND alias_of = ?3
