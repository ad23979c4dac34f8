-- Receipts by subscriber and status. The status '' is the subscriber itself, with the lanes that wait for a person.
SELECT subscriber, status, n, oldest FROM (
  SELECT subscriber, status, count(*) AS n, min(received_at) AS oldest FROM {table receipts}
  WHERE (length(?1) = 0 OR tenant_id = ?1) AND (length(?2) = 0 OR subscriber = ?2) GROUP BY subscriber, status
  UNION ALL
  SELECT subscriber, '', count(*), NULL FROM (SELECT DISTINCT subscriber, tenant_id, lane FROM {table receipts}
    WHERE holds = 1 AND length(lane) > 0 AND status IN ('dead', 'parked', 'in_doubt')
      AND (length(?1) = 0 OR tenant_id = ?1) AND (length(?2) = 0 OR subscriber = ?2)) GROUP BY subscriber
  UNION ALL
  SELECT subscriber, '', 0, NULL FROM {table lanes}
  WHERE length(tenant_id) = 0 AND length(lane) = 0 AND length(?1) = 0 AND (length(?2) = 0 OR subscriber = ?2))
ORDER BY subscriber
