-- How big the tables are, and since when the sweeper could have done what it has not: of the watched exactly, of the plain in a
-- share of the blocks.
with t as materialized (select coalesce($now, clock_timestamp()) as now)
select t.now,
    (select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c
        where c.relnamespace = (select relnamespace from pg_class where oid = to_regclass($records_table)) and c.relkind = 'r'
            and c.oid = any (array[to_regclass($records_table), to_regclass($attempts_table), to_regclass($audit), to_regclass($receipts)])),
    least(
        (select case r.state when 'completed' then r.expires_at when 'pending' then r.lease_until else coalesce(r.gone_at, r.expires_at) end
            from {table records} r
            where r.watch_at <= (select now from t) and r.format = 1 and (
                r.state in ('issued', 'failed') and r.expires_at <= t.now
                or r.state in ('completed', 'expired') and r.gone_at <= t.now
                or r.state = 'completed' and r.expires_at <= t.now
                or r.state = 'pending' and r.lease_until <= t.now and r.started_at is not null and r.on_crash = 'hold')
            order by r.watch_at limit 1),
        (select min(case when r.state = 'pending' then r.lease_until else r.expires_at end)
            from {table records} r tablesample system ($permille / 10.0)
            where r.watch_at is null and r.format = 1 and r.alias_of is null and (
                r.state in ('issued', 'failed', 'completed') and r.expires_at <= t.now
                or r.state = 'pending' and r.lease_until <= t.now and r.started_at is not null and r.on_crash = 'hold')))
from t
