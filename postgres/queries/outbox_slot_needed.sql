-- Which group has not published an event of a slot, and since when it waits. Only what was not finished in the oldest cursor is looked at.
select c.group_name, (extract(epoch from o.appended_at) * 1000000)::bigint
from {table outbox} o join {table outbox_places} c on c.part = o.partition
where o.slot = $seq and o.xid >= (select min(pg_snapshot_xmin(p.older)) from {table outbox_places} p)
    and not (pg_visible_in_snapshot(o.xid, c.older) or c.newer is not null and pg_visible_in_snapshot(o.xid, c.newer) and o.seq <= c.seq)
    and not exists (select from {table outbox_asides} a where a.group_name = c.group_name and a.seq = o.seq)
limit 1
