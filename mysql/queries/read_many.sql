-- The records that any of several digests stands for, aliases followed. A record that several of them stand for comes
-- several times; without one the clock alone.
select {columns r}, r.aliases, r.rev, $clock, a.idempotency_key
from (select 1) one
left join ({table records} a
    join {table records} r on r.tenant_id = a.tenant_id and r.operation = a.operation
        and r.idempotency_key = coalesce(a.alias_of, a.idempotency_key))
    on a.tenant_id = $tenant_id and a.operation = $operation and a.idempotency_key in ($digests)
