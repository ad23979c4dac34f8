-- Receipts by subscriber and status. The status '' is the subscriber itself, with the lanes that wait for a person.
select c.subscriber, c.status, c.n, {when c.oldest}, $clock
from (
    select r.subscriber, r.status, count(*) as n, min(r.received_at) as oldest
    from {table receipts} r
    where ($tenant_id = '' or r.tenant_id = $tenant_id) and ($subscriber = '' or r.subscriber = $subscriber)
    group by r.subscriber, r.status
    union all
    select b.subscriber, '', count(distinct b.tenant_id, b.lane), null
    from {table receipts} b
    where b.holds = 1 and b.lane <> '' and b.status in ('dead', 'parked', 'in_doubt')
        and ($tenant_id = '' or b.tenant_id = $tenant_id) and ($subscriber = '' or b.subscriber = $subscriber)
    group by b.subscriber
    union all
    select l.subscriber, '', 0, null from {table lanes} l
    where l.tenant_id = '' and l.lane = '' and $tenant_id = '' and ($subscriber = '' or l.subscriber = $subscriber)) c
order by c.subscriber
