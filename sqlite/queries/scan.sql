-- Records of a stretch of the table that may be meant, the newest first.
SELECT {packed -response_body -snapshot}
FROM {table records}
WHERE rowid > ?1 AND rowid <= ?2 AND alias_of IS NULL
  AND (?3 = '' OR resource_type = ?3 AND resource_id = ?4 OR instr(refs, ?5) > 0)
  AND (?6 = '' OR instr(lower(trace), ?6) > 0)
  AND (?7 = '' OR tenant_id = CAST(?7 AS BLOB))
ORDER BY rowid DESC
