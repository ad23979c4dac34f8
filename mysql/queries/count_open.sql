-- Running and doubtful records among those that are watched at one end of the index: soon, or by nobody's clock.
select if(state = 'in_doubt' or lease_until <= $at and started_at is not null and on_crash = 'hold', 'in_doubt', 'pending') as what,
    if(state = 'in_doubt', {when changed_at}, if(lease_until <= $at and started_at is not null and on_crash = 'hold', {when lease_until}, {when claimed_at})) as since,
    tenant_id, operation, idempotency_key
from (
    select * from (select tenant_id, operation, idempotency_key, state, on_crash, lease_until, started_at, claimed_at, changed_at
        from {table records} force index ({name records_watch})
        where watch_at <= $soon order by watch_at limit $look) as first
    union all
    select * from (select tenant_id, operation, idempotency_key, state, on_crash, lease_until, started_at, claimed_at, changed_at
        from {table records} force index ({name records_watch})
        where watch_at >= $endless limit $look) as last) as r
where state in ('pending', 'in_doubt') and ($tenant = '' or tenant_id = $tenant) and ($operation = '' or operation = $operation)
