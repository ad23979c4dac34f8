delete from {table attempts} where tenant_id = $tenant_id and operation = $operation and idempotency_key = $idempotency_key
