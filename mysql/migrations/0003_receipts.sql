-- Receipts of finished messages may be kept: how often they came again, when their body goes and when they go themselves. Body
-- and headers may be encrypted, and sealed names the key.
alter table {table receipts}
    add column sealed varchar(32) character set ascii collate ascii_bin not null default '',
    add column seen bigint not null default 0,
    add column seen_at datetime(6),
    add column body_until datetime(6),
    add column gone_at datetime(6),
    add key {name receipts_status} (subscriber, status, seq),
    add key {name receipts_message} (subscriber, message_id(255)),
    add key {name receipts_position} (subscriber, `position`(64)),
    add key {name receipts_gone} (subscriber, gone_at),
    add key {name receipts_bodies} (subscriber, body_until);

-- down
-- only while empty: receipts
alter table {table receipts} drop key {name receipts_status}, drop key {name receipts_message}, drop key {name receipts_position},
    drop key {name receipts_gone}, drop key {name receipts_bodies},
    drop column sealed, drop column seen, drop column seen_at, drop column body_until, drop column gone_at;
