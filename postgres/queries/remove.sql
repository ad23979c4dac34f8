-- Removes a record that was read, if it is still the same, with its aliases and earlier attempts.
with t as materialized (
    select clock_timestamp() as now, set_config('lock_timeout', coalesce($timeout, current_setting('lock_timeout')), true)
),
gone as (
    delete from {table records} r using t
    where r.tenant_id = $tenant_id and r.operation = $operation and r.idempotency_key = $idempotency_key
        and r.attempt = $old_attempt and r.state = $old_state and r.token is not distinct from $old_token
        and r.changed_at = $old_changed_at
    returning 1
),
names as (
    delete from {table records} a using gone
    where a.tenant_id = $tenant_id and a.operation = $operation and a.alias_of = $idempotency_key
),
history as (
    delete from {table attempts} a using gone
    where a.tenant_id = $tenant_id and a.operation = $operation and a.idempotency_key = $idempotency_key
)
select t.now, (select count(*) from gone)::int from t
