-- The finished record of an atomic claim that met no row, sent together with COMMIT. It fails where another attempt
-- has the key by now (22P02), and where the work ended the transaction (22012), so that no effect is committed without
-- its record. One plain insert: a common table expression to count what was written costs a sixth more.
insert into {table records} as r (tenant_id, operation, idempotency_key, request_hash, request_recipe, request_detail,
    state, guard, on_crash, surface, failing, attempt, generation, token, owner, claimed_at, started_at, lease_until,
    status_code, response_headers, response_body, body_size, body_sha256, body_kept, resource_type, resource_id, refs,
    derived_key, snapshot, trace, sealed, format, created_at, changed_at, completed_at, expires_at, gone_at)
select $tenant_id, $operation, $idempotency_key, $request_hash, $request_recipe, $request_detail,
    $state, $guard, $on_crash, $surface, $failing,
    $attempt / ($start is null or $start = (date_part('epoch', transaction_timestamp()) * 1000000)::bigint)::int,
    $generation, $token, $owner, $claimed_at!, $started_at!, $lease_until!,
    $status_code, $response_headers, $response_body, $body_size, $body_sha256, $body_kept, $resource_type, $resource_id, $refs,
    $derived_key, $snapshot, $trace, $sealed, $format, $created_at!, $changed_at!, $completed_at!, $expires_at!, $gone_at!
on conflict (tenant_id, operation, idempotency_key) do update
    set attempt = cast('idempo: another attempt has the key' || r.attempt::text as bigint)
