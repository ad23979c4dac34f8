-- count for rows drawn at random; what was drawn and is no record of this kind counts as ''.
WITH RECURSIVE drawn (n, place) AS (
  SELECT 1, 1 + abs(random() % ?5) UNION ALL SELECT n + 1, 1 + abs(random() % ?5) FROM drawn WHERE n < ?6)
SELECT what, count(*) FROM (
  SELECT CASE
    WHEN alias_of IS NOT NULL OR NOT (tenant_id >= ?2 AND tenant_id <= ?3 AND (?4 = '' OR operation = CAST(?4 AS BLOB))) THEN ''
    WHEN state IN ('issued', 'failed') THEN CASE WHEN expires_at <= ?1 THEN '' ELSE state END
    WHEN state IN ('completed', 'expired') THEN CASE WHEN gone_at <= ?1 THEN ''
      WHEN state = 'expired' OR expires_at <= ?1 THEN 'expired' ELSE 'completed' END
    WHEN state = 'pending' AND lease_until <= ?1 AND started_at IS NOT NULL AND on_crash = 'hold' THEN 'in_doubt'
    ELSE state END AS what
  FROM drawn JOIN {table records} r ON r.rowid = drawn.place)
GROUP BY what
