-- What inboxes keep beside the records: messages that failed, wait, or wait for a person. A message that has its effect
-- at once leaves no row. Texts of a message are BLOBs, since a broker may deliver any.
CREATE TABLE {table receipts} (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_id BLOB NOT NULL,
  subscriber BLOB NOT NULL,
  receipt_key BLOB NOT NULL,
  rev INTEGER NOT NULL,
  status TEXT NOT NULL,
  reason TEXT NOT NULL,
  holds INTEGER NOT NULL CHECK (holds IN (0, 1)),
  source BLOB NOT NULL,
  message_id BLOB NOT NULL,
  message_type BLOB NOT NULL,
  lane BLOB NOT NULL,
  version BLOB NOT NULL,
  headers BLOB,
  body BLOB,
  position BLOB NOT NULL,
  message_at INTEGER,
  attempts INTEGER NOT NULL,
  failures BLOB,
  received_at INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  next_at INTEGER,
  UNIQUE (tenant_id, subscriber, receipt_key)
) STRICT;
CREATE INDEX {name receipts_due} ON {table receipts} (subscriber, next_at, seq) WHERE next_at IS NOT NULL;
CREATE INDEX {name receipts_lane} ON {table receipts} (tenant_id, subscriber, lane, seq) WHERE holds = 1;
CREATE INDEX {name receipts_list} ON {table receipts} (subscriber, seq);

-- The version that a lane has reached. The lane '' of the tenant '' is the subscriber itself: since when it is there.
CREATE TABLE {table lanes} (
  tenant_id BLOB NOT NULL,
  subscriber BLOB NOT NULL,
  lane BLOB NOT NULL,
  version BLOB,
  created_at INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, subscriber, lane)
) STRICT, WITHOUT ROWID;

-- down
-- only while empty: receipts, lanes
DROP TABLE {table lanes};
DROP TABLE {table receipts};
