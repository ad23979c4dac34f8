-- Whether anything stands under a digest.
SELECT 1 FROM {table records} WHERE tenant_id = ? AND operation = ? AND idempotency_key = ?
