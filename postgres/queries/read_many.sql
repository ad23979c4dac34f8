-- The records that any of several digests stands for, aliases followed, in the order of the digests. A record that
-- several of them stand for comes several times.
select {columns r}, coalesce($now, clock_timestamp()), pg_postmaster_start_time()
from unnest(string_to_array($digests, ',')) with ordinality g (digest, place)
-- limit 1: each is looked up by its whole key. A join may read all keys of the operation instead.
cross join lateral (
    select coalesce(alias_of, idempotency_key) as digest from {table records}
    where tenant_id = $tenant_id and operation = $operation and idempotency_key = decode(g.digest, 'hex') limit 1
) a
cross join lateral (
    select * from {table records}
    where tenant_id = $tenant_id and operation = $operation and idempotency_key = a.digest limit 1
) r
order by g.place
