-- What may be due for a taker: watched records, and plain ones that are too young to be watched. The rule itself is
-- judged on each; $limit is only how many are looked at.
select {columns r}, t.now
from (select coalesce($now, clock_timestamp()) as now) t
join {table records} r on r.state in ('pending', 'in_doubt') and r.operation in (select unnest(string_to_array($operations, ',')))
    and (r.watch_at <= t.now
        or r.watch_at is null and r.created_at >= (select watched_to from {table meta}) and r.lease_until <= t.now)
    and (r.state = 'in_doubt' or r.lease_until <= t.now)
order by coalesce(r.due_at, r.lease_until)
limit $limit
for update of r skip locked
