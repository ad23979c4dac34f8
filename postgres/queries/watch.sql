-- Watches what has been pending for a minute, so that nobody has to look for it among everything else. The bounds are
-- values, not a join, which would read the whole table.
with t as materialized (
    select clock_timestamp() - interval '1 minute' as until, m.watched_to from {table meta} m where m.sweeper = $sweeper
),
late as materialized (
    select r.ctid as place from {table records} r
    where r.created_at >= (select watched_to from t) and r.created_at < (select until from t)
        and r.state = 'pending' and r.watch_at is null
    for update of r skip locked
),
put as (update {table records} r set watch_at = r.lease_until from late where r.ctid = late.place),
missed as (
    select min(r.created_at) as at from {table records} r
    where r.created_at >= (select watched_to from t) and r.created_at < (select until from t)
        and r.state = 'pending' and r.watch_at is null and r.ctid not in (select place from late)
)
update {table meta} set watched_to = least(t.until, missed.at) from t, missed where sweeper = $sweeper
