select o.seq, o.partition, o.id::text, o.source, o.tenant_id, o.topic, o.key, o.type, o.content_type, null::bytea, 1, o.headers, o.traceparent, o.tracestate,
    o.correlation_id, o.key_ref, o.sealed, (extract(epoch from o.appended_at) * 1000000)::bigint,
    case when pg_visible_in_snapshot(o.xid, c.older) or c.newer is not null and pg_visible_in_snapshot(o.xid, c.newer) and o.seq <= c.seq then 1 else 0 end
from {table outbox} o left join {table outbox_places} c on c.group_name = $group and c.part = o.partition
where o.seq > $after and ($tenant = '' or o.tenant_id = $tenant) and ($event_key = '' or o.key = $event_key) and ($key_ref = '' or o.key_ref = $key_ref)
    and ($from_at = 0 or o.appended_at >= timestamptz 'epoch' + $from_at * interval '1 microsecond')
    and ($to_at = 0 or o.appended_at < timestamptz 'epoch' + $to_at * interval '1 microsecond')
order by o.seq limit $limit
