-- The attempt that ends by being taken over, settled or retried. One that is there already stays as it ended first.
INSERT INTO {table attempts} (tenant_id, operation, idempotency_key, attempt, generation, state, guard, surface, owner,
  claimed_at, started_at, lease_until, completed_at, failing, status_code, note, trace, moved_at)
SELECT tenant_id, operation, idempotency_key, attempt, generation, state, guard, surface, owner,
  claimed_at, started_at, lease_until, completed_at, failing, status_code, note, trace, ?4
FROM {table records}
WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = ?3
ON CONFLICT (tenant_id, operation, idempotency_key, attempt) DO NOTHING
