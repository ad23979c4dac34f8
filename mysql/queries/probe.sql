-- Whether a digest has a row, and the clock: what a claim asks of a key that it expects to be new, in fewer columns than
-- lock. A row is locked.
select r.rev, $clock
from (select 1) one
left join {table records} r on r.tenant_id = $tenant_id and r.operation = $operation and r.idempotency_key = $idempotency_key
for update nowait
