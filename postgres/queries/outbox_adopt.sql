-- What groups of another database had not published is set aside, in order behind what is. Whatever was appended after a cursor was stored
-- is not published, though its number, this server's own, may look so to snapshots of the other.
insert into {table outbox_asides} (group_name, seq, part, id, source, tenant, topic, event_key, event_type, content_type, payload, headers, traceparent, tracestate,
    correlation_id, key_ref, sealed, appended_at, state, class, holds, head, paused, attempts, starts, due_at, first_at, last_at, first_error, last_error)
select c.group_name, o.seq, o.partition, o.id::text, o.source, o.tenant_id, o.topic, coalesce(o.key, ''), o.type, coalesce(o.content_type, ''), o.payload,
    coalesce(o.headers, ''), coalesce(o.traceparent, ''), coalesce(o.tracestate, ''), coalesce(o.correlation_id, ''), coalesce(o.key_ref, ''), coalesce(o.sealed, ''),
    (extract(epoch from o.appended_at) * 1000000)::bigint, 'queued', '', case when o.key is null then 0 else 1 end,
    case when o.key is null or row_number() over (partition by c.group_name, o.tenant_id, o.key order by o.seq) = 1 and not exists (
        select from {table outbox_asides} a where a.group_name = c.group_name and a.tenant = o.tenant_id and a.event_key = o.key and a.holds = 1) then 1 else 0 end,
    0, 0, 0, $at, $at, $at, '', ''
from {table outbox} o join {table outbox_places} c on c.part = o.partition join {table outbox_groups} g on g.name = c.group_name and g.identity <> $identity
where not (o.appended_at <= c.moved_at
        and (pg_visible_in_snapshot(o.xid, c.older) or c.newer is not null and pg_visible_in_snapshot(o.xid, c.newer) and o.seq <= c.seq))
    and not exists (select from {table outbox_asides} a where a.group_name = c.group_name and a.seq = o.seq)
