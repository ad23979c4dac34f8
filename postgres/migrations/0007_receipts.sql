-- Receipts of finished messages may be kept: how often they came again, when their body goes and when they go themselves. Body
-- and headers may be encrypted, and sealed names the key.
alter table {table receipts}
    add column sealed text collate "C" not null default '',
    add column seen bigint not null default 0,
    add column seen_at timestamptz,
    add column body_until timestamptz,
    add column gone_at timestamptz;
create index {name receipts_status} on {table receipts} (subscriber, status, seq);
create index {name receipts_message} on {table receipts} (subscriber, message_id);
create index {name receipts_position} on {table receipts} (subscriber, position) where position <> '';
create index {name receipts_gone} on {table receipts} (subscriber, gone_at) where gone_at is not null;
create index {name receipts_bodies} on {table receipts} (subscriber, body_until) where body_until is not null and body is not null;

-- down
-- only while empty: receipts
drop index {table receipts_status};
drop index {table receipts_message};
drop index {table receipts_position};
alter table {table receipts} drop column sealed, drop column seen, drop column seen_at, drop column body_until, drop column gone_at;
