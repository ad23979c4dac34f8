-- A leased claim, an issued or an enqueued key: the row that is there, or else the row that is won. Where neither comes
-- back, somebody else is at it: the next statement sees what they wrote.
with t as materialized (select coalesce($now, clock_timestamp()) as now),
seen as materialized (
    select * from {table records}
    where tenant_id = $tenant_id and operation = $operation and idempotency_key = $idempotency_key
),
won as (
    insert into {table records} (tenant_id, operation, idempotency_key, request_hash, request_recipe, request_detail,
        state, guard, on_crash, surface, attempt, generation, token, owner, claimed_at, started_at, lease_until,
        derived_key, snapshot, due_at, trace, sealed, format, created_at, changed_at, issued_until, expires_at, watch_at)
    select $tenant_id, $operation, $idempotency_key, $request_hash, $request_recipe, $request_detail,
        $state, $guard, $on_crash, $surface, $attempt, $generation, $token, $owner, $claimed_at, $started_at, $lease_until,
        $derived_key, $snapshot, $due_at, $trace, $sealed, $format, $created_at, $changed_at, $issued_until, $expires_at, $watch_at
    from t
    -- The lock keeps a claim from waiting at the insert for an open transaction; it decides nothing. The timeout is for
    -- those who write without it.
    where case when exists (select from seen) then false
        else pg_try_advisory_xact_lock($lock)
            and set_config('lock_timeout', coalesce($timeout, current_setting('lock_timeout')), true) is not null end
    on conflict (tenant_id, operation, idempotency_key) do nothing
    returning true as won
)
select seen.won, {columns seen}, t.now, pg_postmaster_start_time()
from t join (select s.*, null::boolean as won from seen s) seen on true
union all
select won.won, {columns seen}, t.now, pg_postmaster_start_time()
from t join won on true left join seen on false
