-- A lane's version, since when it is there and when it got the version, and whether a receipt before that of the key (any, if the key has none) holds it.
select t.now, l.version, l.created_at, l.changed_at, exists (
        select 1 from {table receipts} h
        where h.tenant_id = $tenant_id and h.subscriber = $subscriber and h.lane = $lane and h.holds and h.receipt_key <> $receipt_key
            and h.seq < coalesce((select o.seq from {table receipts} o
                where o.tenant_id = $tenant_id and o.subscriber = $subscriber and o.receipt_key = $receipt_key), 9223372036854775807))
from (select coalesce($now, clock_timestamp()) as now) t
left join {table lanes} l on l.tenant_id = $tenant_id and l.subscriber = $subscriber and l.lane = $lane
