-- How big the file is, and since when the sweeper could have done what it has not.
SELECT (SELECT page_count FROM pragma_page_count) * (SELECT page_size FROM pragma_page_size), min(due) FROM (
  SELECT min(expires_at) AS due FROM {table records} INDEXED BY {name records_end}
  WHERE state IN ('issued', 'completed', 'failed') AND expires_at <= ?1 AND format <= ?2
  UNION ALL
  SELECT min(gone_at) FROM {table records} INDEXED BY {name records_gone}
  WHERE state = 'expired' AND gone_at IS NOT NULL AND gone_at <= ?1 AND format <= ?2
  UNION ALL
  SELECT min(lease_until) FROM {table records} INDEXED BY {name records_lease}
  WHERE state = 'pending' AND lease_until <= ?1 AND started_at IS NOT NULL AND on_crash = 'hold' AND format <= ?2)
