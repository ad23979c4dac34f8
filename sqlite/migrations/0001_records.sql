-- Which migrations were applied. This statement stays the first: it is also run before any migration is looked for.
CREATE TABLE IF NOT EXISTS {table migrations} (
  version INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  applied_at INTEGER NOT NULL,
  applied_by TEXT NOT NULL
) STRICT;
CREATE TABLE {table meta} (
  name TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- The identity of this store; a transaction of another file is told by it.
INSERT INTO {table meta} (name, value) VALUES ('store_id', lower(hex(randomblob(16)))), ('format', '1'), ('epoch', '1');

-- The tables of a store: what page `stores` lists, in SQLite's types. Times are microseconds since 1970, UTC.
-- Keys, tenants and operations are BLOBs in STRICT tables: no affinity and no collation ever makes two of them one.
CREATE TABLE {table records} (
  tenant_id BLOB NOT NULL,
  operation BLOB NOT NULL,
  idempotency_key BLOB NOT NULL,
  alias_of BLOB,
  request_hash BLOB,
  request_recipe TEXT,
  request_detail BLOB,
  state TEXT CHECK (state IN ('issued', 'pending', 'completed', 'failed', 'in_doubt', 'expired')),
  guard TEXT CHECK (guard IN ('atomic', 'leased')),
  on_crash TEXT CHECK (on_crash IN ('', 'hold', 'probe', 'rerun')),
  surface TEXT,
  failing INTEGER CHECK (failing IN (0, 1)),
  attempt INTEGER CHECK (attempt >= 0),
  generation INTEGER CHECK (generation >= 1),
  token BLOB CHECK (length(token) = 16),
  owner TEXT,
  claimed_at INTEGER,
  started_at INTEGER,
  lease_until INTEGER,
  status_code INTEGER,
  response_headers BLOB,
  response_body BLOB,
  body_size INTEGER CHECK (body_size >= 0),
  body_sha256 BLOB,
  body_kept INTEGER CHECK (body_kept IN (0, 1)),
  resource_type TEXT,
  resource_id TEXT,
  refs BLOB,
  derived_key TEXT,
  snapshot BLOB,
  due_at INTEGER,
  note TEXT,
  trace TEXT,
  sealed TEXT,
  format INTEGER,
  created_at INTEGER,
  changed_at INTEGER,
  completed_at INTEGER,
  issued_until INTEGER,
  expires_at INTEGER,
  gone_at INTEGER,
  PRIMARY KEY (tenant_id, operation, idempotency_key),
  CHECK (alias_of IS NOT NULL OR (state IS NOT NULL AND guard IS NOT NULL AND on_crash IS NOT NULL AND attempt IS NOT NULL
    AND generation IS NOT NULL AND format IS NOT NULL AND created_at IS NOT NULL AND changed_at IS NOT NULL)),
  CHECK (state <> 'pending' OR lease_until IS NOT NULL)
) STRICT;

-- A key reference is the first 16 bytes of the digest: a range of this index.
CREATE INDEX {name records_ref} ON {table records} (idempotency_key);
CREATE INDEX {name records_alias} ON {table records} (tenant_id, operation, alias_of) WHERE alias_of IS NOT NULL;
-- What a sweep ends, the oldest first. An atomic call writes it once, with its finished record.
CREATE INDEX {name records_end} ON {table records} (expires_at) WHERE state IN ('issued', 'completed', 'failed');
CREATE INDEX {name records_gone} ON {table records} (gone_at) WHERE state = 'expired' AND gone_at IS NOT NULL;
-- What lists and takers need; the way of an atomic call never touches them.
CREATE INDEX {name records_lease} ON {table records} (lease_until) WHERE state = 'pending';
CREATE INDEX {name records_doubt} ON {table records} (changed_at) WHERE state = 'in_doubt';
CREATE INDEX {name records_due} ON {table records} (operation, due_at) WHERE due_at IS NOT NULL;

-- An attempt's columns move here when it is taken over, settled or retried.
CREATE TABLE {table attempts} (
  tenant_id BLOB NOT NULL,
  operation BLOB NOT NULL,
  idempotency_key BLOB NOT NULL,
  attempt INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  state TEXT NOT NULL,
  guard TEXT NOT NULL,
  surface TEXT,
  owner TEXT,
  claimed_at INTEGER,
  started_at INTEGER,
  lease_until INTEGER,
  completed_at INTEGER,
  failing INTEGER,
  status_code INTEGER,
  note TEXT,
  trace TEXT,
  moved_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, operation, idempotency_key, attempt)
) STRICT, WITHOUT ROWID;

-- What operators did, and why. Rows are never changed.
CREATE TABLE {table audit} (
  id INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  reason TEXT NOT NULL,
  tenant_id BLOB,
  operation BLOB,
  idempotency_key BLOB,
  attempt INTEGER,
  detail TEXT
) STRICT;
CREATE INDEX {name audit_key} ON {table audit} (tenant_id, operation, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- down
-- only while empty: records, attempts, audit
DROP TABLE {table audit};
DROP TABLE {table attempts};
DROP TABLE {table records};
DROP TABLE {table meta};
DROP TABLE {table migrations};
