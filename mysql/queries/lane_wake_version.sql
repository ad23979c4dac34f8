-- The receipts of a lane that wait for this version's turn become due.
update {table receipts} set next_at = $at
where tenant_id = $tenant_id and subscriber = $subscriber and lane = $lane and holds = 1 and version = $wanted and status in ('stored', 'parked')
