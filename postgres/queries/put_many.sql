-- finish for a key under several digests, and for records that are not completed: all of them, or the statement fails.
with t as materialized (select coalesce($now, clock_timestamp()) as now,
    $start is null or $start = (date_part('epoch', transaction_timestamp()) * 1000000)::bigint as open),
given as materialized (
    select decode(g.digest, 'hex') as digest, g.place
    from unnest(string_to_array($digests, ',')) with ordinality g (digest, place)
),
won as (
    insert into {table records} (tenant_id, operation, idempotency_key, request_hash, request_recipe, request_detail,
        state, guard, on_crash, surface, failing, attempt, generation, token, owner, claimed_at, started_at, lease_until,
        status_code, response_headers, response_body, body_size, body_sha256, body_kept, resource_type, resource_id, refs,
        derived_key, snapshot, due_at, note, trace, sealed, format, created_at, changed_at, completed_at, issued_until,
        expires_at, gone_at, watch_at)
    select $tenant_id, $operation, $idempotency_key, $request_hash, $request_recipe, $request_detail,
        $state, $guard, $on_crash, $surface, $failing, $attempt, $generation, $token, $owner, $claimed_at, $started_at, $lease_until,
        $status_code, $response_headers, $response_body, $body_size, $body_sha256, $body_kept, $resource_type, $resource_id, $refs,
        $derived_key, $snapshot, $due_at, $note, $trace, $sealed, $format, $created_at, $changed_at, $completed_at, $issued_until,
        $expires_at, $gone_at, $watch_at
    from t
    where t.open and set_config('lock_timeout', coalesce($timeout, current_setting('lock_timeout')), true) is not null
    on conflict (tenant_id, operation, idempotency_key) do nothing
    returning 1
),
named as (
    insert into {table records} (tenant_id, operation, idempotency_key, alias_of, created_at, changed_at)
    select $tenant_id, $operation, given.digest, $idempotency_key, t.now, t.now
    from given, t, won where given.place > 1
    on conflict (tenant_id, operation, idempotency_key) do nothing
    returning 1
)
select t.now, case when t.open
    then cast(case when (select count(*) from won) + (select count(*) from named) = (select count(*) from given) then '1'
        else 'idempo: another attempt has the key' end as int)
    else 1 / t.open::int end
from t
