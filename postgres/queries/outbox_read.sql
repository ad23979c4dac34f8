-- One page of a window: what is visible in its newer snapshot and was not in its older one. First the late rows, of transactions that
-- were open in the older snapshot, then those behind $low, each by seq. What a page weighs is judged before payloads are read; the first
-- row that is too much comes without its payload, as a sign. There is no upper bound on purpose: what can be seen in the newer snapshot is
-- not above it, and the planner would take the range for a few rows, and sort a whole backlog for each page.
with w as materialized (
    select coalesce($newer::pg_snapshot, pg_current_snapshot()) as newer, $older::pg_snapshot as older, s.last, coalesce($high, s.last) as high,
        string_to_array($parts, ',')::smallint[] as parts, array(select pg_snapshot_xip($older::pg_snapshot)) as open
    from (select case when is_called then last_value else 0 end as last from {table outbox_seq}) s
),
page as (
    select p.*, row_number() over (order by p.pass, p.seq) as n, sum(p.size) over (order by p.pass, p.seq rows unbounded preceding) as weight
    from (
        (select 0 as pass, o.*, coalesce(octet_length(o.payload), 0) as size from {table outbox} o
        where $pass = 0 and o.xid = any((select open from w)::xid8[]) and o.seq > $after and o.seq <= $low
            and o.partition = any((select parts from w)::smallint[]) and pg_visible_in_snapshot(o.xid, (select newer from w))
            and ($topics is null or o.topic like any(string_to_array($topics, ',')))
        order by o.seq limit $rows)
        union all
        (select 1 as pass, o.*, coalesce(octet_length(o.payload), 0) as size from {table outbox} o
        where o.seq > case when $pass = 0 then $low else $after end and o.partition = any((select parts from w)::smallint[]) and pg_visible_in_snapshot(o.xid, (select newer from w))
            and not pg_visible_in_snapshot(o.xid, (select older from w))
            and ($topics is null or o.topic like any(string_to_array($topics, ',')))
        order by o.seq limit $rows)
    ) p order by p.pass, p.seq limit $rows
)
select o.seq, o.partition, o.id::text, o.source, o.tenant_id, o.topic, o.key, o.type, o.content_type,
    case when o.n = 1 or o.weight <= $bytes then o.payload end, case when o.payload is null then 1 else 0 end, o.headers, o.traceparent, o.tracestate,
    o.correlation_id, o.key_ref, o.sealed, (extract(epoch from o.appended_at) * 1000000)::bigint,
    o.pass, o.n = 1 or o.weight <= $bytes,
    case when (select exists (select from {table outbox_asides} a where a.group_name = $group)) then exists (
        select from {table outbox_asides} a where a.group_name = $group and a.seq = o.seq) or exists (
        select from {table outbox_asides} a where a.group_name = $group and a.tenant = o.tenant_id and a.event_key = o.key and a.holds = 1) else false end,
    case when o.n is null or o.n = 1 then w.newer::text end, w.last, (select token from {table outbox_alive}),
    (select g.epoch from {table outbox_groups} g where g.name = $group)
from w left join page o on o.weight - o.size <= $bytes or o.n = 2
order by o.n
