-- The attempt that ends by being taken over, settled or retried, once. The row of the record is locked.
insert into {table attempts} (tenant_id, operation, idempotency_key, generation, attempt, state, surface, owner,
    status_code, failing, note, trace, claimed_at, started_at, lease_until, completed_at, ended_at)
select tenant_id, operation, idempotency_key, generation, attempt, state, surface, owner,
    status_code, failing, note, trace, claimed_at, started_at, lease_until, completed_at, $changed_at
from {table records} r
where r.tenant_id = $tenant_id and r.operation = $operation and r.idempotency_key = $idempotency_key and r.attempt > 0
on duplicate key update ended_at = {table attempts}.ended_at
