-- The row of one digest as it is now, whatever the transaction has seen before, locked. An alias is not followed. Without
-- a row the clock alone comes back.
select {columns r}, r.aliases, r.rev, $clock
from (select 1) one
left join {table records} r on r.tenant_id = $tenant_id and r.operation = $operation and r.idempotency_key = $idempotency_key
for update $nowait
