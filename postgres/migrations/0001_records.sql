-- One row per key: the record, or an alias of it under another digest. Keys compare as bytes. No index has a column that
-- completing a record changes, so that those updates stay within their page (HOT). Words have no check: it costs every call
-- a tenth of its server time (docs/decisions/0010); a row with a word that is none is unreadable, and answers nothing.
create table {table records} (
    tenant_id        text collate "C" not null,
    operation        text collate "C" not null,
    idempotency_key  bytea not null,
    alias_of         bytea,
    request_hash     bytea,
    request_recipe   text collate "C",
    request_detail   bytea,
    state            text collate "C",
    guard            text collate "C",
    on_crash         text collate "C",
    surface          text collate "C",
    failing          boolean not null default false,
    attempt          bigint not null default 0,
    generation       int not null default 1,
    token            bytea,
    owner            text collate "C",
    claimed_at       timestamptz,
    started_at       timestamptz,
    lease_until      timestamptz,
    status_code      int,
    response_headers bytea,
    response_body    bytea,
    body_size        bigint not null default 0,
    body_sha256      bytea,
    body_kept        boolean not null default false,
    resource_type    text collate "C",
    resource_id      text collate "C",
    refs             bytea,
    derived_key      text collate "C",
    snapshot         bytea,
    due_at           timestamptz,
    note             text collate "C",
    trace            text collate "C",
    sealed           text collate "C",
    format           smallint not null default 1,
    created_at       timestamptz not null,
    changed_at       timestamptz not null,
    completed_at     timestamptz,
    issued_until     timestamptz,
    expires_at       timestamptz,
    gone_at          timestamptz,
    -- When somebody should look at a record that is not on the plain way from claim to completion: an enqueued, failed,
    -- doubtful or expired one. A plain call never writes it, so that its index costs such a call nothing.
    watch_at         timestamptz,
    constraint {name records_pkey} primary key (tenant_id, operation, idempotency_key)
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02,
        autovacuum_vacuum_insert_scale_factor = 0.02);

create index {name records_ref} on {table records} (substr(idempotency_key, 1, 16));
create index {name records_created} on {table records} using brin (created_at) with (pages_per_range = 32, autosummarize = on);
create index {name records_watch} on {table records} (watch_at) where watch_at is not null;
create index {name records_aliases} on {table records} (tenant_id, operation, alias_of) where alias_of is not null;

-- What an attempt had when it was taken over, settled by somebody else or retried.
create table {table attempts} (
    tenant_id       text collate "C" not null,
    operation       text collate "C" not null,
    idempotency_key bytea not null,
    generation      int not null,
    attempt         bigint not null,
    state           text collate "C",
    surface         text collate "C",
    owner           text collate "C",
    status_code     int,
    failing         boolean not null default false,
    note            text collate "C",
    trace           text collate "C",
    claimed_at      timestamptz,
    started_at      timestamptz,
    lease_until     timestamptz,
    completed_at    timestamptz,
    ended_at        timestamptz not null,
    constraint {name attempts_pkey} primary key (tenant_id, operation, idempotency_key, generation, attempt)
);

-- What operators did, and what they were refused. Append-only; it outlives the records.
create table {table audit} (
    id              bigint generated always as identity constraint {name audit_pkey} primary key,
    at              timestamptz not null default clock_timestamp(),
    actor           text not null,
    role            text not null default '',
    channel         text not null default '',
    action          text not null,
    outcome         text not null default 'done',
    tenant_id       text collate "C",
    operation       text collate "C",
    idempotency_key bytea,
    attempt         bigint,
    state_before    text,
    state_after     text,
    reason          text not null default '',
    evidence        text not null default ''
);
create index {name audit_at} on {table audit} (at, id);
create index {name audit_key} on {table audit} (tenant_id, operation, idempotency_key);

-- One row: which store this is, what it holds, and who sweeps it.
create table {table meta} (
    one         boolean not null default true constraint {name meta_pkey} primary key constraint {name meta_one} check (one),
    store_id    text not null,
    format      int not null default 1,
    epoch       bigint not null default 1,
    epoch_until timestamptz,
    sweeper     text,
    sweep_until timestamptz,
    watched_to  timestamptz not null default '-infinity' -- pending records created before it have a watch_at
);
insert into {table meta} (store_id) values (gen_random_uuid()::text);

-- Under which digest keys records may live, so that a process without one of them does not start. mark tells two values of one
-- id apart and shows neither.
create table {table digest_keys} (
    id       text collate "C" constraint {name digest_keys_pkey} primary key,
    mark     text not null,
    added_at timestamptz not null default clock_timestamp()
);

-- down
-- only while empty: records, attempts, audit
drop table {table digest_keys};
drop table {table records};
drop table {table attempts};
drop table {table audit};
drop table {table meta};
drop table {table migrations};
