-- Appends events in the caller's transaction. First the locks of their keys, in the order given, then the transaction's own number,
-- and only then one sequence value after the other: a cursor relies on that order. The payloads lie in $payload one behind the other.
with locked as materialized (
    select count(pg_advisory_xact_lock(l::bigint)) as n from unnest(string_to_array($locks, ',')) l
),
begun as materialized (
    select locked.n, pg_current_xact_id() as xid, c.at, {table outbox_slot}(c.at, s.span_days) as slot
    from locked cross join lateral (select coalesce($now, clock_timestamp()) as at, locked.n) c, {table outbox_state} s
),
given as (
    select r.*, $payload as payloads from jsonb_to_recordset($rows_json::jsonb) r (n int, part int, id uuid, source text, tenant text, topic text, key text,
        type text, content text, headers text, parent text, state text, correlation text, ref text, sealed text, place int, size int)
    order by n
),
appended as (
    insert into {table outbox} (seq, xid, slot, partition, id, source, tenant_id, topic, key, type, content_type, payload, headers, traceparent, tracestate,
        correlation_id, key_ref, sealed, appended_at, recorded_at)
    select nextval('{table outbox_seq}'), begun.xid, begun.slot, g.part, g.id, g.source, g.tenant, g.topic, g.key, g.type, g.content,
        substr(g.payloads, g.place, g.size), g.headers, g.parent, g.state, g.correlation, g.ref, g.sealed, begun.at, begun.at at time zone 'UTC'
    from begun cross join given g
)
select at from begun
