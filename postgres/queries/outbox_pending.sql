-- What a group has not published of the log, by partition and topic. Beyond 100,000 it counts no further.
with c as materialized (select * from {table outbox_places} where group_name = $group),
m as (select coalesce(min(low), 0) as low, array(select distinct pg_snapshot_xip(older) from c) as open from c),
o as (
    (select * from {table outbox} where seq > (select low from m))
    union all
    (select * from {table outbox} where xid = any((select open from m)::xid8[]) and seq <= (select low from m))
)
select p.partition, p.topic, count(*), min(p.at) from (
    select o.partition, o.topic, (extract(epoch from o.appended_at) * 1000000)::bigint as at
    from o join c on c.part = o.partition
    where not (pg_visible_in_snapshot(o.xid, c.older) or c.newer is not null and pg_visible_in_snapshot(o.xid, c.newer) and o.seq <= c.seq)
        and not exists (select from {table outbox_asides} a where a.group_name = $group and a.seq = o.seq)
    limit 100000
) p group by p.partition, p.topic
