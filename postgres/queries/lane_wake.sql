-- The earliest receipt that holds a lane becomes due, if it waits for its turn.
update {table receipts} r set next_at = t.now
from (select coalesce($now, clock_timestamp()) as now) t
where r.tenant_id = $tenant_id and r.subscriber = $subscriber and r.status = 'stored' and r.next_at is null
    and r.receipt_key = (select h.receipt_key from {table receipts} h
        where h.tenant_id = $tenant_id and h.subscriber = $subscriber and h.lane = $lane and h.holds order by h.seq limit 1)
