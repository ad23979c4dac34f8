DELETE FROM {table attempts} WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = ?3
