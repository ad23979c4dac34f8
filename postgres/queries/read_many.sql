-- The records that any of several digests stands for, aliases followed, in the order of the digests. A record that
-- several of them stand for comes several times.
select {columns r}, coalesce($now, clock_timestamp())
from unnest(string_to_array($digests, ',')) with ordinality g (digest, place)
join {table records} a on a.tenant_id = $tenant_id and a.operation = $operation and a.idempotency_key = decode(g.digest, 'hex')
join {table records} r on r.tenant_id = $tenant_id and r.operation = $operation and r.idempotency_key = coalesce(a.alias_of, a.idempotency_key)
order by g.place
