-- list for running and doubtful records, of which there are few: those that are watched now, those in doubt for good, those that
-- are due far ahead, and plain ones that are too young to be watched. The rest of the table is not read.
with t as materialized (select coalesce($now, clock_timestamp()) as now),
opened as materialized (
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
),
next as materialized (
    select o.tenant_id, o.operation, o.idempotency_key from opened o
    where (o.tenant_id, o.operation, o.idempotency_key) > ($after_tenant, $after_operation, $after_key)
        and ($tenant = '' or o.tenant_id = $tenant)
        and ($operation = '' or o.operation = $operation)
)
select {columns r -response_body -snapshot}, t.now
from t, next n join {table records} r using (tenant_id, operation, idempotency_key)
where r.alias_of is null and ($surface = '' or r.surface = $surface) and r.state in ('pending', 'in_doubt')
order by r.tenant_id, r.operation, r.idempotency_key
limit $limit
