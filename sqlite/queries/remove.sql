DELETE FROM {table records} WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = ?3 AND alias_of IS NULL
