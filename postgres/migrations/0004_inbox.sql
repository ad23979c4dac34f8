-- What inboxes keep beside the records: messages that failed, wait, or wait for a person. A message that has its effect
-- at once leaves no row. Texts of a message are bytes, since a broker may deliver any.
create table {table receipts} (
    tenant_id    text collate "C" not null,
    subscriber   text collate "C" not null,
    receipt_key  bytea not null,
    seq          bigint generated always as identity,
    rev          bigint not null,
    status       text collate "C" not null,
    reason       text collate "C" not null,
    holds        boolean not null, -- later messages of its lane wait for it
    source       bytea not null,
    message_id   bytea not null,
    message_type bytea not null,
    lane         bytea not null,
    version      bytea not null,
    headers      bytea,
    body         bytea,
    position     bytea not null,
    message_at   timestamptz,
    attempts     int not null,
    failures     bytea, -- JSON: when, and the error of each
    received_at  timestamptz not null,
    changed_at   timestamptz not null,
    next_at      timestamptz, -- null: by itself it is never due
    constraint {name receipts_pkey} primary key (tenant_id, subscriber, receipt_key)
);
create index {name receipts_due} on {table receipts} (subscriber, next_at, seq) where next_at is not null;
create index {name receipts_lane} on {table receipts} (tenant_id, subscriber, lane, seq) where holds;
create index {name receipts_list} on {table receipts} (subscriber, seq);

-- The version that a lane has reached. The lane '' of the tenant '' is the subscriber itself: since when it is there.
create table {table lanes} (
    tenant_id  text collate "C" not null,
    subscriber text collate "C" not null,
    lane       bytea not null,
    version    bytea,
    created_at timestamptz not null,
    changed_at timestamptz not null,
    constraint {name lanes_pkey} primary key (tenant_id, subscriber, lane)
);

-- down
-- only while empty: receipts, lanes
drop table {table receipts};
drop table {table lanes};
