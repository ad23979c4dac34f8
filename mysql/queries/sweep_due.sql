-- What somebody has to look at, the oldest first: results and tombstones that are over, started records of vanished
-- owners, and records that have moved on since their watch was set. What a taker waits for is left alone.
select tenant_id, operation, idempotency_key, aliases, case
    when state in ('issued', 'failed') and expires_at <= utc_timestamp(6) then 'gone'
    when state in ('completed', 'expired') and gone_at <= utc_timestamp(6) then 'gone'
    when state = 'completed' and expires_at <= utc_timestamp(6) then 'tombstone'
    when state = 'pending' and lease_until <= utc_timestamp(6) then 'doubt'
    else 'watch' end
from {table records} force index ({name records_watch})
where watch_at <= utc_timestamp(6) and format <= 1 and (state in ('issued', 'failed', 'completed', 'expired')
    or state = 'pending' and (lease_until > utc_timestamp(6) or on_crash = 'hold' and started_at is not null)
    or state = 'in_doubt' and on_crash = 'hold')
order by watch_at
limit $limit
for update skip locked
