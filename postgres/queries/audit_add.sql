-- One row of the audit.
insert into {table audit} (at, actor, role, channel, action, outcome, code, tenant_id, operation, idempotency_key, attempt,
    state_before, state_after, reason, evidence)
values (coalesce($now, clock_timestamp()), $actor, $role, $channel, $action, $outcome, $code, $tenant_id, $operation, $idempotency_key, $attempt,
    $state_before, $state_after, $reason, $evidence)
returning id, at
