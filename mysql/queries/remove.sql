-- Removes a record with its aliases. Its row is locked.
delete from {table records}
where tenant_id = $tenant_id and operation = $operation and (idempotency_key = $idempotency_key
    or idempotency_key in ($digests) and alias_of = $idempotency_key)
