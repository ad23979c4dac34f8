-- The primary key decides. Where the row is there already the statement changes nothing, locks the row, and says so by
-- LAST_INSERT_ID: 0 is a new row, 1 another's row, 2 one with this token. No row count is asked: what it says of a
-- duplicate depends on a flag of the connection.
insert into {table records} (tenant_id, operation, idempotency_key, request_hash, request_recipe, request_detail,
    state, guard, on_crash, surface, failing, attempt, generation, token, owner, claimed_at, started_at, lease_until,
    status_code, response_headers, response_body, body_size, body_sha256, body_kept, resource_type, resource_id, refs,
    derived_key, snapshot, due_at, note, trace, sealed, format, created_at, changed_at, completed_at, issued_until,
    expires_at, gone_at, aliases, watch_at, rev)
values ($tenant_id, $operation, $idempotency_key, $request_hash, $request_recipe, $request_detail,
    $state, $guard, $on_crash, $surface, $failing, $attempt, $generation, $token, $owner, $claimed_at, $started_at, $lease_until,
    $status_code, $response_headers, $response_body, $body_size, $body_sha256, $body_kept, $resource_type, $resource_id, $refs,
    $derived_key, $snapshot, $due_at, $note, $trace, $sealed, $format, $created_at, $changed_at, $completed_at, $issued_until,
    $expires_at, $gone_at, $aliases, $watch_at, 1)
on duplicate key update rev = rev + 0 * last_insert_id(if(token <=> $token, 2, 1))
