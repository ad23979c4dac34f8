-- The records whose digest begins with a reference: one, but for a chance of 2^-128. An alias stands for its record.
select {columns r -response_body -snapshot}, r.aliases, r.rev, $clock
from {table records} n
join {table records} r on r.tenant_id = n.tenant_id and r.operation = n.operation
    and r.idempotency_key = coalesce(n.alias_of, n.idempotency_key) and r.alias_of is null
where n.idempotency_key between $ref and concat($ref, repeat(x'ff', 16))
order by r.tenant_id, r.operation, r.idempotency_key
