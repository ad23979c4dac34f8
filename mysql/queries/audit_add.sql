-- One row of the audit. LAST_INSERT_ID is its id.
insert into {table audit} (at, actor, role, channel, action, outcome, code, tenant_id, operation, idempotency_key, attempt,
    state_before, state_after, reason, evidence)
values ($at, $actor, $role, $channel, $action, $outcome, $code, $tenant_id, $operation, $idempotency_key, $attempt,
    $state_before, $state_after, $reason, $evidence)
