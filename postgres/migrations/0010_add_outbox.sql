-- The outbox: events that leave if and only if the transaction that appended them committed. Rows are added, never changed, and
-- leave by whole slots: one slot holds the events of a day (of span_days days), eleven slots follow each other in a ring.

create sequence {table outbox_seq} as bigint cache 1; -- a cache would let a later event of a key draw an earlier number

create table {table outbox} (
    seq          bigint not null,   -- drawn under the key's lock and after xid
    xid          xid8 not null,     -- of the transaction: what a cursor's snapshots tell apart
    slot         smallint not null,
    partition    smallint not null, -- 0 to 63, a hash of tenant and key, without a key of the id
    id           uuid not null,
    source       text collate "C" not null,
    tenant_id    text collate "C" not null,
    topic        text collate "C" not null,
    key          text collate "C",
    type         text collate "C" not null,
    content_type text collate "C",
    payload      bytea,
    headers      text collate "C",  -- a JSON array of pairs, in order
    traceparent  text collate "C",
    tracestate   text collate "C",
    correlation_id text collate "C",
    key_ref      text collate "C",  -- of the claim in whose transaction it was appended
    sealed       text collate "C",  -- the id of the key that payload is encrypted under
    appended_at  timestamptz not null,
    recorded_at  timestamp not null -- appended_at in UTC: the type that the Debezium event router takes for a time
) partition by list (slot);
create table {table outbox_0} partition of {table outbox} for values in (0);
create table {table outbox_1} partition of {table outbox} for values in (1);
create table {table outbox_2} partition of {table outbox} for values in (2);
create table {table outbox_3} partition of {table outbox} for values in (3);
create table {table outbox_4} partition of {table outbox} for values in (4);
create table {table outbox_5} partition of {table outbox} for values in (5);
create table {table outbox_6} partition of {table outbox} for values in (6);
create table {table outbox_7} partition of {table outbox} for values in (7);
create table {table outbox_8} partition of {table outbox} for values in (8);
create table {table outbox_9} partition of {table outbox} for values in (9);
create table {table outbox_10} partition of {table outbox} for values in (10);
create index {name outbox_order} on {table outbox} (seq, partition);
create index {name outbox_late} on {table outbox} (xid);
create index {name outbox_time} on {table outbox} using brin (appended_at) with (pages_per_range = 32, autosummarize = on);

-- One row: how long a slot is, what an append may weigh, and for whom this database publishes.
create table {table outbox_state} (
    one          int not null default 1 constraint {name outbox_state_pkey} primary key constraint {name outbox_state_one} check (one = 1),
    span_days    int not null default 1,       -- of a slot; eleven of them must outlast the retention
    max_payload  int not null default 983040,  -- bytes, for outbox_append
    environment  text collate "C" not null default '',
    gone_at      bigint not null default 0     -- when the newest event was appended that has left the log
);
insert into {table outbox_state} default values;

-- What is published from here, and how far. Times in these tables are microseconds since 1970.
create table {table outbox_groups} (
    name          text collate "C" not null constraint {name outbox_groups_pkey} primary key,
    topics        text not null,             -- globs, separated by blanks
    external      int not null default 0,    -- published by somebody else, through a replication slot
    slot_name     text not null default '',
    epoch         bigint not null default 1, -- grows when relays come and go and when operators change something
    paused        int not null default 0,
    paused_topics text not null default '',
    identity      text not null,             -- of the database that was published from last
    created_at    bigint not null
);

-- The relays that live, and until when.
create table {table outbox_relays} (
    group_name text collate "C" not null,
    owner      text collate "C" not null,
    since_at   bigint not null,
    until_at   bigint not null,
    constraint {name outbox_relays_pkey} primary key (group_name, owner)
);

-- How far each partition is, and whose it is: a write that names another fence changes nothing.
create table {table outbox_cursors} (
    group_name text collate "C" not null,
    part       int not null,
    owner      text collate "C" not null default '',
    fence      bigint not null default 0,
    starts     int not null default 0,       -- owners since something got on
    win        text not null default '',     -- see DESIGN.md
    seq        bigint not null default 0,    -- in win
    moved_at   bigint not null default 0,
    constraint {name outbox_cursors_pkey} primary key (group_name, part)
) with (fillfactor = 50);

-- Events that a group's cursor has passed before they were published: with a copy, so that their slot can be emptied.
create table {table outbox_asides} (
    group_name     text collate "C" not null,
    seq            bigint not null,
    part           int not null,
    id             text not null,
    source         text not null,
    tenant         text collate "C" not null,
    topic          text collate "C" not null,
    event_key      text collate "C" not null,
    event_type     text not null,
    content_type   text not null,
    payload        bytea,
    headers        text not null,
    traceparent    text not null,
    tracestate     text not null,
    correlation_id text not null,
    key_ref        text not null,
    sealed         text not null,
    appended_at    bigint not null,
    state          text collate "C" not null, -- waiting queued dead skipped
    class          text collate "C" not null,
    holds          int not null,              -- later ones of its key wait for it
    head           int not null,              -- it waits for none of its key
    paused         int not null,              -- its topic is
    attempts       int not null,
    starts         int not null,
    taken          int not null default 0,    -- its owner tries it
    due_at         bigint,                    -- null: by itself it is never due
    first_at       bigint not null,
    last_at        bigint not null,
    first_error    text not null,
    last_error     text not null,
    replay         text not null default '',
    constraint {name outbox_asides_pkey} primary key (group_name, seq)
);
create index {name outbox_asides_due} on {table outbox_asides} (group_name, due_at, seq) where head = 1 and paused = 0 and due_at is not null;
create index {name outbox_asides_key} on {table outbox_asides} (group_name, tenant, event_key, seq);

-- The cursors in parts. An event is published if it can be seen in older, or in newer up to seq.
create view {table outbox_places} as
select c.group_name, c.part, c.seq, timestamptz 'epoch' + c.moved_at * interval '1 microsecond' as moved_at, coalesce(nullif(split_part(c.win, ' ', 2), ''), '1:1:')::pg_snapshot as older,
    coalesce(nullif(split_part(c.win, ' ', 3), ''), '0')::bigint as low, nullif(split_part(c.win, ' ', 4), '')::pg_snapshot as newer
from {table outbox_cursors} c;

-- Topics that no group needs: an operator said so.
create table {table outbox_discarded} (
    topic text collate "C" not null constraint {name outbox_discarded_pkey} primary key,
    at    bigint not null
);

-- Empty after a crash of the server or a promotion: what a relay has seen since its cursor was stored is not to be trusted then, for
-- a transaction that had written nothing durable may have left its number to another one.
create unlogged table {table outbox_alive} (
    one   int not null default 1 constraint {name outbox_alive_pkey} primary key,
    token text not null
);

-- The slot of a moment: day by day around the ring.
create function {table outbox_slot}(at timestamptz, span_days int) returns smallint
language sql immutable set search_path = pg_catalog, pg_temp as $body$
    select (floor(extract(epoch from at) / 86400)::bigint / span_days % 11)::smallint
$body$;

-- The partition of an event, as outbox.PartitionOf computes it.
create function {table outbox_partition}(tenant_id text, key text, id uuid) returns smallint
language sql immutable set search_path = pg_catalog, pg_temp as $body$
    select (get_byte(sha256(convert_to(case when key is null then id::text
        else octet_length(convert_to(tenant_id, 'UTF8')) || ':' || tenant_id || key end, 'UTF8')), 0) & 63)::smallint
$body$;

-- Takes the lock of an event key until the transaction ends: the one that every other append of this key takes.
create function {table outbox_lock}(tenant_id text, key text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
    id text := (select m.store_id from {table meta} m);
    sum bytea := sha256(convert_to(id, 'UTF8') || '\x00' || convert_to(tenant_id, 'UTF8') || '\x00' || 'outbox' || '\x00' || convert_to(key, 'UTF8'));
begin
    perform pg_advisory_xact_lock(('x' || encode(substr(sum, 1, 8), 'hex'))::bit(64)::bigint);
end $body$;

-- Appends an event in the caller's transaction and returns its id: yours, or a new UUIDv7. Two appends with one key wait for each
-- other until the first one's transaction ends, so that they are published in that order; append the events of one transaction
-- in the order of their keys, or two transactions may deadlock (40P01: run the whole transaction again). headers is an array
-- of pairs of strings. It is refused with IP003, and nothing is written, if an argument breaks a rule.
create function {table outbox_append}(topic text, key text, type text, payload bytea, source text, tenant text default 'default',
    headers jsonb default null, content_type text default null, id uuid default null) returns uuid
language plpgsql set search_path = pg_catalog, pg_temp as $body$
#variable_conflict use_variable
declare
    control text := '[' || chr(1) || '-' || chr(31) || chr(127) || '-' || chr(159) || ']';
    event uuid := id;
    owner text := coalesce(tenant, 'default');
    keyed text := nullif(key, '');
    pair jsonb;
    size int := 0;
    at timestamptz;
    x xid8;
begin
    if topic is null or topic collate "C" !~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$' or length(topic) > 200 then
        perform {table refuse_argument}('topic: 1 to 200 of A-Z a-z 0-9 . _ -, no empty part between dots');
    end if;
    if keyed is not null and (octet_length(convert_to(keyed, 'UTF8')) > 512 or keyed ~ control) then
        perform {table refuse_argument}('key: up to 512 bytes without control characters');
    end if;
    if type is null or octet_length(convert_to(type, 'UTF8')) not between 1 and 255 or type ~ control then
        perform {table refuse_argument}('type: 1 to 255 bytes without control characters');
    end if;
    if source is null or octet_length(convert_to(source, 'UTF8')) not between 1 and 255 or source ~ control then
        perform {table refuse_argument}('source: 1 to 255 bytes without control characters');
    end if;
    if octet_length(convert_to(owner, 'UTF8')) not between 1 and 255 or owner ~ control then
        perform {table refuse_argument}('tenant: 1 to 255 bytes without control characters');
    end if;
    if octet_length(convert_to(content_type, 'UTF8')) > 255 or content_type ~ control then
        perform {table refuse_argument}('content_type: up to 255 bytes without control characters');
    end if;
    if event = '00000000-0000-0000-0000-000000000000' then
        perform {table refuse_argument}('id: not the nil UUID');
    end if;
    if octet_length(payload) > (select s.max_payload from {table outbox_state} s) then
        perform {table refuse_argument}('payload: longer than max_payload of table outbox_state');
    end if;
    if headers is not null then
        if not {table headers_valid}(headers) then
            perform {table refuse_argument}('headers: an array of pairs of strings');
        end if;
        for pair in select * from jsonb_array_elements(headers) loop
            if jsonb_typeof(pair -> 0) <> 'string' or jsonb_typeof(pair -> 1) <> 'string' or pair ->> 0 !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]+$'
                or pair ->> 0 ~* '^(ce_|ce-|cloudevents|idempo-|nats-|webhook-|(idempotency-key|traceparent|tracestate|correlation-id|content-type|x-deduplication-header)$)'
                or pair ->> 1 ~ ('[' || chr(10) || chr(13) || ']') then
                perform {table refuse_argument}('headers: names are HTTP tokens and not reserved, values have no line break');
            end if;
            size := size + octet_length(convert_to(pair ->> 0, 'UTF8')) + octet_length(convert_to(pair ->> 1, 'UTF8'));
        end loop;
        if size > 16384 then
            perform {table refuse_argument}('headers: up to 16 KiB together');
        end if;
    end if;
    if keyed is not null then
        perform {table outbox_lock}(owner, keyed);
    end if;
    x := pg_current_xact_id(); -- before nextval: a cursor relies on it
    at := clock_timestamp();
    if event is null then -- version 7: milliseconds, then random bits
        event := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
            placing substring(int8send(floor(extract(epoch from at) * 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1), 'hex')::uuid;
    end if;
    insert into {table outbox} (seq, xid, slot, partition, id, source, tenant_id, topic, key, type, content_type, payload, headers, appended_at, recorded_at)
    select nextval('{table outbox_seq}'), x, {table outbox_slot}(at, s.span_days), {table outbox_partition}(owner, keyed, event), event,
        source, owner, topic, keyed, type, content_type, payload,
        headers::text, at, at at time zone 'UTC'
    from {table outbox_state} s;
    return event;
end $body$;

-- down
-- only while empty: outbox, outbox_asides
drop function {table outbox_append};
drop function {table outbox_lock};
drop function {table outbox_partition};
drop function {table outbox_slot};
drop table {table outbox_alive};
drop table {table outbox_discarded};
drop table {table outbox_asides};
drop view {table outbox_places};
drop table {table outbox_cursors};
drop table {table outbox_relays};
drop table {table outbox_groups};
drop table {table outbox_state};
drop table {table outbox};
drop sequence {table outbox_seq};
