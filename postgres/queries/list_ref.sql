-- The records whose digest begins with a reference: one, but for a chance of 2^-128. An alias stands for its record.
select {columns r -response_body -snapshot}, coalesce($now, clock_timestamp())
from {table records} n
join {table records} r on r.tenant_id = n.tenant_id and r.operation = n.operation
    and r.idempotency_key = coalesce(n.alias_of, n.idempotency_key) and r.alias_of is null
where substr(n.idempotency_key, 1, 16) = $ref
order by r.tenant_id, r.operation, r.idempotency_key
