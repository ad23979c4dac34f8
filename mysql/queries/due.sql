-- What may be due for a taker, the oldest first. The rule itself is judged on each; $limit is only how many are looked at.
select {columns r}, r.aliases, r.rev, $clock
from {table records} r force index ({name records_watch})
where r.watch_at <= coalesce($now, utc_timestamp(6)) and r.state in ('pending', 'in_doubt') and r.operation in ($operations)
    and (r.state = 'in_doubt' or r.lease_until <= coalesce($now, utc_timestamp(6)))
order by r.watch_at
limit $limit
for update skip locked
