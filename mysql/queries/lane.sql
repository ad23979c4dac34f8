-- The clock, a lane's version and since when it is there, and whether a receipt before that of the key (any, if the key has
-- none) holds it.
select $clock, l.version, {when l.created_at}, {when l.changed_at}, exists (
        select 1 from {table receipts} h
        where h.tenant_id = $tenant_id and h.subscriber = $subscriber and h.lane = $lane and h.holds = 1 and h.receipt_key <> $receipt_key
            and h.seq < coalesce((select o.seq from {table receipts} o
                where o.tenant_id = $tenant_id and o.subscriber = $subscriber and o.receipt_key = $receipt_key), 9223372036854775807))
from (select 1) one
left join {table lanes} l on l.tenant_id = $tenant_id and l.subscriber = $subscriber and l.lane = $lane
