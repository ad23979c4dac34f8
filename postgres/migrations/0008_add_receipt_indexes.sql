-- concurrently
-- Receipts are looked for by status, id and position, and what is over by its time.
create index concurrently if not exists {name receipts_status} on {table receipts} (subscriber, status, seq);
create index concurrently if not exists {name receipts_message} on {table receipts} (subscriber, message_id);
create index concurrently if not exists {name receipts_position} on {table receipts} (subscriber, position) where position <> '';
create index concurrently if not exists {name receipts_gone} on {table receipts} (subscriber, gone_at) where gone_at is not null;
create index concurrently if not exists {name receipts_bodies} on {table receipts} (subscriber, body_until) where body_until is not null and body is not null;

-- down
drop index {table receipts_status};
drop index {table receipts_message};
drop index {table receipts_position};
drop index {table receipts_gone};
drop index {table receipts_bodies};
