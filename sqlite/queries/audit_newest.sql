-- Rows of the audit before one, the newest first.
SELECT id, at, actor, role, channel, action, outcome, code, tenant_id, operation, idempotency_key, coalesce(attempt, 0),
  state_before, state_after, reason, evidence
FROM {table audit}
WHERE (?1 = 0 OR id < ?1) AND (?2 = '' OR tenant_id = CAST(?2 AS BLOB)) AND (?3 = '' OR operation = CAST(?3 AS BLOB))
  AND (?4 IS NULL OR idempotency_key >= ?4 AND idempotency_key < ?5)
  AND (?6 = '' OR actor = ?6) AND (?7 = '' OR action = ?7) AND (?8 = '' OR outcome = ?8)
  AND (?9 IS NULL OR at >= ?9) AND (?10 IS NULL OR at < ?10)
  AND (?11 IS NULL OR instr(?11, ' ' || hex(tenant_id) || ' ') > 0)
ORDER BY id DESC LIMIT ?12
