-- Receipts of finished messages may be kept: how often they came again, when their body goes and when they go themselves. Body
-- and headers may be encrypted, and sealed names the key.
ALTER TABLE {table receipts} ADD COLUMN sealed TEXT NOT NULL DEFAULT '';
ALTER TABLE {table receipts} ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;
ALTER TABLE {table receipts} ADD COLUMN seen_at INTEGER;
ALTER TABLE {table receipts} ADD COLUMN body_until INTEGER;
ALTER TABLE {table receipts} ADD COLUMN gone_at INTEGER;
CREATE INDEX {name receipts_status} ON {table receipts} (subscriber, status, seq);
CREATE INDEX {name receipts_message} ON {table receipts} (subscriber, message_id);
CREATE INDEX {name receipts_position} ON {table receipts} (subscriber, position) WHERE length(position) > 0;
CREATE INDEX {name receipts_gone} ON {table receipts} (subscriber, gone_at) WHERE gone_at IS NOT NULL;
CREATE INDEX {name receipts_bodies} ON {table receipts} (subscriber, body_until) WHERE body_until IS NOT NULL AND body IS NOT NULL;

-- down
-- only while empty: receipts
DROP INDEX {name receipts_status};
DROP INDEX {name receipts_message};
DROP INDEX {name receipts_position};
DROP INDEX {name receipts_gone};
DROP INDEX {name receipts_bodies};
ALTER TABLE {table receipts} DROP COLUMN sealed;
ALTER TABLE {table receipts} DROP COLUMN seen;
ALTER TABLE {table receipts} DROP COLUMN seen_at;
ALTER TABLE {table receipts} DROP COLUMN body_until;
ALTER TABLE {table receipts} DROP COLUMN gone_at;
