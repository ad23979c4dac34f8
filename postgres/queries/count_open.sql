-- Running and doubtful records: how many, and the oldest. They are the watched, and the plain ones that are too young to be
-- watched; nobody reads the rest.
with t as materialized (select coalesce($now, clock_timestamp()) as now),
places as materialized (
    select r.tenant_id, r.operation, r.idempotency_key from {table records} r
    where r.watch_at <= (select t.now + interval '2 hours' from t) and r.state in ('pending', 'in_doubt')
    union
    select r.tenant_id, r.operation, r.idempotency_key from {table records} r
    where r.watch_at = timestamptz '9999-01-01 00:00:00+00' and r.state in ('pending', 'in_doubt')
    union
    select r.tenant_id, r.operation, r.idempotency_key from {table records} r
    where r.due_at > (select t.now from t) and r.state in ('pending', 'in_doubt')
    union
    select r.tenant_id, r.operation, r.idempotency_key from {table records} r
    where r.created_at >= (select watched_to from {table meta}) and r.watch_at is null and r.state in ('pending', 'in_doubt')
    limit $limit
),
opened as (
    select r.tenant_id, r.operation, r.idempotency_key, r.lease_until, r.changed_at, r.claimed_at, t.now, r.state,
        case when r.state = 'in_doubt' or r.lease_until <= t.now and r.started_at is not null and r.on_crash = 'hold' then 'in_doubt'
            else 'pending' end as what
    from places p join {table records} r using (tenant_id, operation, idempotency_key), t
    where r.state in ('pending', 'in_doubt') and ($tenant = '' or r.tenant_id = $tenant) and ($operation = '' or r.operation = $operation)
),
dated as (
    select *, case when what = 'pending' then claimed_at when state = 'pending' then lease_until else changed_at end as since from opened
)
select t.now, d.what, coalesce(d.n, 0), d.since, d.tenant_id, d.operation, d.idempotency_key
from t left join (
    select distinct on (what) what, count(*) over (partition by what) as n, since, tenant_id, operation, idempotency_key
    from dated order by what, since, idempotency_key) d on true
