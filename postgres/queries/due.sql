-- What may be due for a taker: watched records from their index, and plain ones that are too young to be watched from the
-- end of the table. The rule itself is judged on each; $limit is only how many are looked at.
with t as materialized (select coalesce($now, clock_timestamp()) as now),
found as materialized (
    (select r.ctid as place, r.watch_at as due from {table records} r
    where r.watch_at <= (select now from t) and r.state in ('pending', 'in_doubt') and r.operation = any (string_to_array($operations, ','))
        and (r.state = 'in_doubt' or r.lease_until <= (select now from t))
    order by r.watch_at limit $limit)
    union all
    (select r.ctid, r.lease_until from {table records} r
    where r.watch_at is null and r.created_at >= (select watched_to from {table meta}) and r.state = 'pending'
        and r.operation = any (string_to_array($operations, ',')) and r.lease_until <= (select now from t)
    limit $limit)
)
select {columns r}, t.now
from t, found join {table records} r on r.ctid = found.place
order by coalesce(r.due_at, r.lease_until)
limit $limit
for update of r skip locked
