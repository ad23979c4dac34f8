-- The first so many records by what they count as, and how many were looked at.
SELECT what, count(*) FROM (
  SELECT CASE
    WHEN state IN ('issued', 'failed') THEN CASE WHEN expires_at <= ?1 THEN '' ELSE state END
    WHEN state IN ('completed', 'expired') THEN CASE WHEN gone_at <= ?1 THEN ''
      WHEN state = 'expired' OR expires_at <= ?1 THEN 'expired' ELSE 'completed' END
    WHEN state = 'pending' AND lease_until <= ?1 AND started_at IS NOT NULL AND on_crash = 'hold' THEN 'in_doubt'
    ELSE state END AS what
  FROM {table records}
  WHERE alias_of IS NULL AND tenant_id >= ?2 AND tenant_id <= ?3 AND (?4 = '' OR operation = CAST(?4 AS BLOB))
  LIMIT ?5)
GROUP BY what
