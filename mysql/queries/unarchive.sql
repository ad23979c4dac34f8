-- Takes archive back: the claim that had taken the record over came to nothing.
delete from {table attempts}
where tenant_id = $tenant_id and operation = $operation and idempotency_key = $idempotency_key
    and attempt = $attempt and ended_at = $ended_at
