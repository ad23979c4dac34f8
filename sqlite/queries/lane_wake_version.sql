-- The receipts of a lane that wait for this version's turn become due.
UPDATE {table receipts} SET next_at = ?4
WHERE tenant_id = ?1 AND subscriber = ?2 AND lane = ?3 AND holds = 1 AND version = ?5 AND status IN ('stored', 'parked')
