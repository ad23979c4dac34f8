-- The receipts of a lane that wait for this version's turn become due.
update {table receipts} r set next_at = t.now
from (select coalesce($now, clock_timestamp()) as now) t
where r.tenant_id = $tenant_id and r.subscriber = $subscriber and r.lane = $lane and r.holds and r.version = $wanted and r.status in ('stored', 'parked')
