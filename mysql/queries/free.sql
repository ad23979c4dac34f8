-- Gives aliases of a record back, whose row is locked.
delete from {table records}
where tenant_id = $tenant_id and operation = $operation and idempotency_key in ($digests) and alias_of = $idempotency_key
