-- One row of the audit.
INSERT INTO {table audit} (at, actor, role, channel, action, outcome, code, tenant_id, operation, idempotency_key, attempt,
  state_before, state_after, reason, evidence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
