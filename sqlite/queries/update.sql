-- The whole condition is repeated although the write lock is held: 0 rows is a claim lost, whatever went wrong.
UPDATE {table records} SET (
  request_hash, request_recipe, request_detail, state, guard, on_crash, surface,
  failing, attempt, generation, token, owner, claimed_at, started_at,
  lease_until, status_code, response_headers, response_body, body_size, body_sha256, body_kept,
  resource_type, resource_id, refs, derived_key, snapshot, due_at, note,
  trace, sealed, format, created_at, changed_at, completed_at, issued_until,
  expires_at, gone_at
) = (
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?)
WHERE tenant_id = ? AND operation = ? AND idempotency_key = ? AND alias_of IS NULL
  AND attempt = ? AND state = ? AND token IS ?
