-- Receipts by subscriber and status. The status '' is the subscriber itself, with the lanes that wait for a person.
select c.subscriber, c.status, c.n, (extract(epoch from c.oldest) * 1000000)::bigint, (extract(epoch from t.now) * 1000000)::bigint
from (select coalesce($now, clock_timestamp()) as now) t
cross join (
    select r.subscriber, r.status, count(*) as n, min(r.received_at) as oldest
    from {table receipts} r
    where ($tenant_id = '' or r.tenant_id = $tenant_id) and ($subscriber = '' or r.subscriber = $subscriber)
    group by r.subscriber, r.status
    union all
    select b.subscriber, '', count(distinct (b.tenant_id, b.lane)), null
    from {table receipts} b
    where b.holds and length(b.lane) > 0 and b.status in ('dead', 'parked', 'in_doubt')
        and ($tenant_id = '' or b.tenant_id = $tenant_id) and ($subscriber = '' or b.subscriber = $subscriber)
    group by b.subscriber
    union all
    select l.subscriber, '', 0, null from {table lanes} l
    where l.tenant_id = '' and length(l.lane) = 0 and $tenant_id = '' and ($subscriber = '' or l.subscriber = $subscriber)) c
order by c.subscriber
