SELECT attempt, generation, state, guard, surface, owner, claimed_at, started_at, lease_until, completed_at, failing, status_code,
  note, trace, moved_at
FROM {table attempts}
WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = ?3
ORDER BY attempt
