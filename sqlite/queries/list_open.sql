-- list for running and doubtful records, by their own indexes: the rest of the table is not read.
SELECT {packed r -response_body -snapshot}
FROM (
  SELECT rowid AS place FROM {table records} INDEXED BY {name records_lease} WHERE state = 'pending'
  UNION ALL
  SELECT rowid FROM {table records} INDEXED BY {name records_doubt} WHERE state = 'in_doubt') o
CROSS JOIN {table records} r ON r.rowid = o.place
WHERE (r.tenant_id, r.operation, r.idempotency_key) > (?1, ?2, ?3) AND r.tenant_id <= ?4
  AND r.alias_of IS NULL
  AND (?5 = '' OR r.operation = CAST(?5 AS BLOB))
  AND (?6 = '' OR r.surface = ?6)
ORDER BY r.tenant_id, r.operation, r.idempotency_key
LIMIT ?7
