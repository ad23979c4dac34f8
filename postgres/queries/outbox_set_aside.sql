insert into {table outbox_asides} (group_name, seq, part, id, source, tenant, topic, event_key, event_type, content_type, payload, headers, traceparent, tracestate,
    correlation_id, key_ref, sealed, appended_at, state, class, holds, head, paused, attempts, starts, due_at, first_at, last_at, first_error, last_error)
select $group, o.seq, o.partition, o.id::text, o.source, o.tenant_id, o.topic, coalesce(o.key, ''), o.type, coalesce(o.content_type, ''), o.payload,
    coalesce(o.headers, ''), coalesce(o.traceparent, ''), coalesce(o.tracestate, ''), coalesce(o.correlation_id, ''), coalesce(o.key_ref, ''), coalesce(o.sealed, ''),
    (extract(epoch from o.appended_at) * 1000000)::bigint, $state, $class, $hold, $head, $paused, $attempts, $starts, $due_from, $at, $at, $error, $error
from {table outbox} o where o.seq = $seq
