-- Sets the watch of records anew that have moved on since it was set.
with t as materialized (select clock_timestamp() as now),
stale as materialized (
    select r.ctid as place from {table records} r, t
    where r.watch_at <= (select now from t) and (
        r.state = 'completed' and r.expires_at > t.now
        or r.state = 'expired' and (r.gone_at is null or r.gone_at > t.now)
        or r.state in ('issued', 'failed') and r.expires_at > t.now
        or r.state = 'pending' and r.lease_until > t.now
        or r.state = 'in_doubt' and r.on_crash = 'hold')
    order by r.watch_at limit $batch
    for update of r skip locked
)
update {table records} r set watch_at = case r.state when 'completed' then null when 'expired' then r.gone_at
    when 'pending' then r.lease_until when 'in_doubt' then timestamptz '9999-01-01 00:00:00+00' else r.expires_at end
from stale where r.ctid = stale.place
