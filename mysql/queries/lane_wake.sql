-- The earliest receipt that holds a lane becomes due, if it waits for its turn.
update {table receipts} set next_at = $at
where tenant_id = $tenant_id and subscriber = $subscriber and status = 'stored' and next_at is null
    and receipt_key = (select k from (select h.receipt_key as k from {table receipts} h
        where h.tenant_id = $tenant_id and h.subscriber = $subscriber and h.lane = $lane and h.holds = 1 order by h.seq limit 1) as earliest)
