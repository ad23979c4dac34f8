-- update for a claim of this transaction, whose row is locked and pending: what completing leaves as it is stays.
update {table records} set
    state = $state, failing = $failing, status_code = $status_code, response_headers = $response_headers,
    response_body = $response_body, body_size = $body_size, body_sha256 = $body_sha256, body_kept = $body_kept,
    resource_type = $resource_type, resource_id = $resource_id, refs = $refs, started_at = $started_at, lease_until = $lease_until, derived_key = $derived_key, due_at = null, note = null, sealed = $sealed,
    changed_at = $changed_at, completed_at = $completed_at, expires_at = $expires_at, gone_at = $gone_at, rev = rev + 1
where tenant_id = $tenant_id and operation = $operation and idempotency_key = $idempotency_key
    and token = $token and attempt = $attempt and state = 'pending'
