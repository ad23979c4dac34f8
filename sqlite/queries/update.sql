-- The whole condition is repeated although the write lock is held: 0 rows is a claim lost, whatever went wrong.
UPDATE {table records} SET (
  request_hash, request_recipe, request_detail, state, guard, on_crash, surface,
  failing, attempt, generation, token, owner, claimed_at, started_at,
  lease_until, status_code, response_headers, response_body, body_size, body_sha256, body_kept,
  resource_type, resource_id, refs, derived_key, snapshot, due_at, note,
  trace, sealed, format, created_at, changed_at, completed_at, issued_until,
  expires_at, gone_at
) = (
  ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
  ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28,
  ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40,
  ?41)
WHERE tenant_id = ?1 AND operation = ?2 AND idempotency_key = ?3 AND alias_of IS ?4
  AND attempt = ?42 AND state = ?43 AND token IS ?44
