-- The finished record of an atomic claim that met no row, sent together with COMMIT. It fails where another attempt
-- has the key by now (22P02), and where the work ended the transaction (22012), so that no effect is committed without
-- its record.
with t as materialized (select coalesce($now, clock_timestamp()) as now,
    $start is null or $start = (extract(epoch from transaction_timestamp()) * 1000000)::bigint as open),
won as (
    insert into {table records} (tenant_id, operation, idempotency_key, request_hash, request_recipe, request_detail,
        state, guard, on_crash, surface, failing, attempt, generation, token, owner, claimed_at, started_at, lease_until,
        status_code, response_headers, response_body, body_size, body_sha256, body_kept, resource_type, resource_id, refs,
        derived_key, snapshot, trace, sealed, format, created_at, changed_at, completed_at, expires_at, gone_at)
    select $tenant_id, $operation, $idempotency_key, $request_hash, $request_recipe, $request_detail,
        $state, $guard, $on_crash, $surface, $failing, $attempt, $generation, $token, $owner, $claimed_at, $started_at, $lease_until,
        $status_code, $response_headers, $response_body, $body_size, $body_sha256, $body_kept, $resource_type, $resource_id, $refs,
        $derived_key, $snapshot, $trace, $sealed, $format, $created_at, $changed_at, $completed_at, $expires_at, $gone_at
    from t
    where t.open and set_config('lock_timeout', coalesce($timeout, current_setting('lock_timeout')), true) is not null
    on conflict (tenant_id, operation, idempotency_key) do nothing
    returning 1
)
select t.now, case when t.open then cast(case when exists (select from won) then '1'
    else 'idempo: another attempt has the key' end as int) else 1 / t.open::int end
from t
