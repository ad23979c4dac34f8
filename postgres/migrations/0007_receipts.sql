-- Receipts of finished messages may be kept: how often they came again, when their body goes and when they go themselves. Body
-- and headers may be encrypted, and sealed names the key.
alter table {table receipts}
    add column sealed text collate "C" not null default '',
    add column seen bigint not null default 0,
    add column seen_at timestamptz,
    add column body_until timestamptz,
    add column gone_at timestamptz;

-- down
-- only while empty: receipts
alter table {table receipts} drop column sealed, drop column seen, drop column seen_at, drop column body_until, drop column gone_at;
