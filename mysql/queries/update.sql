-- Writes a record in the place of one that was read, if it is still the same. Whether it was is said by LAST_INSERT_ID,
-- unless the row is locked anyway.
update {table records} set
    request_hash = $request_hash, request_recipe = $request_recipe, request_detail = $request_detail,
    state = $state, guard = $guard, on_crash = $on_crash, surface = $surface, failing = $failing,
    attempt = $attempt, generation = $generation, token = $token, owner = $owner,
    claimed_at = $claimed_at, started_at = $started_at, lease_until = $lease_until,
    status_code = $status_code, response_headers = $response_headers, response_body = $response_body,
    body_size = $body_size, body_sha256 = $body_sha256, body_kept = $body_kept,
    resource_type = $resource_type, resource_id = $resource_id, refs = $refs,
    derived_key = $derived_key, snapshot = $snapshot, due_at = $due_at, note = $note, trace = $trace,
    sealed = $sealed, format = $format, created_at = $created_at, changed_at = $changed_at,
    completed_at = $completed_at, issued_until = $issued_until, expires_at = $expires_at, gone_at = $gone_at,
    aliases = $aliases, watch_at = coalesce($watch_at, watch_at), rev = $next_rev
where tenant_id = $tenant_id and operation = $operation and idempotency_key = $idempotency_key
    and attempt = $old_attempt and state = $old_state and token <=> $old_token and rev = $old_rev
    and ($alive is null or lease_until > $alive)
