-- The record of one digest, aliases followed. Plain reading: no lock, no write. Without a record the clock alone comes
-- back.
select {columns r}, r.aliases, r.rev, $clock
from (select 1) one
left join {table records} r on r.tenant_id = $tenant_id and r.operation = $operation and r.idempotency_key = coalesce((
    select a.alias_of from {table records} a
    where a.tenant_id = $tenant_id and a.operation = $operation and a.idempotency_key = $idempotency_key), $idempotency_key)
