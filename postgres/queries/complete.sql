-- The result of a leased claim, if its row is still the claim's own and pending. No row: it is not. What comes back is
-- what completing leaves as it is.
with t as materialized (
    select coalesce($now, clock_timestamp()) as now,
        set_config('lock_timeout', coalesce($timeout, current_setting('lock_timeout')), true)
)
update {table records} r set
    state = $state, failing = $failing, status_code = $status_code, response_headers = $response_headers,
    response_body = $response_body, body_size = $body_size, body_sha256 = $body_sha256, body_kept = $body_kept,
    resource_type = $resource_type, resource_id = $resource_id, due_at = null, note = null, sealed = $sealed,
    changed_at = $changed_at, completed_at = $completed_at, expires_at = $expires_at, gone_at = $gone_at
from t
where r.tenant_id = $tenant_id and r.operation = $operation and r.idempotency_key = $idempotency_key
    and r.token = $token and r.attempt = $attempt and r.state = 'pending'
returning t.now, pg_postmaster_start_time(), r.request_hash, r.request_recipe, r.request_detail, r.guard, r.on_crash, r.surface, r.generation, r.owner,
    r.claimed_at, r.started_at, r.lease_until, r.refs, r.derived_key, r.snapshot, r.trace, r.created_at, r.issued_until
