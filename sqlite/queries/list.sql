-- Records after a key, in key order; what is filtered further is judged by the caller, on the effective state.
SELECT {packed -response_body -snapshot}
FROM {table records}
WHERE (tenant_id, operation, idempotency_key) > (?1, ?2, ?3) AND tenant_id <= ?4
  AND alias_of IS NULL
  AND (?5 = '' OR operation = CAST(?5 AS BLOB))
  AND (?6 = '' OR surface = ?6)
  AND (?7 = '' OR instr(?7, ' ' || state || ' ') > 0)
ORDER BY tenant_id, operation, idempotency_key
LIMIT ?8
