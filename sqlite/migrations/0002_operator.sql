-- What an audit row says besides, and that it stays: rows are added, never changed and never removed.
ALTER TABLE {table audit} ADD COLUMN role TEXT NOT NULL DEFAULT '';
ALTER TABLE {table audit} ADD COLUMN channel TEXT NOT NULL DEFAULT '';
ALTER TABLE {table audit} ADD COLUMN outcome TEXT NOT NULL DEFAULT 'done';
ALTER TABLE {table audit} ADD COLUMN code TEXT NOT NULL DEFAULT '';
ALTER TABLE {table audit} ADD COLUMN state_before TEXT NOT NULL DEFAULT '';
ALTER TABLE {table audit} ADD COLUMN state_after TEXT NOT NULL DEFAULT '';
ALTER TABLE {table audit} ADD COLUMN evidence TEXT NOT NULL DEFAULT '';
CREATE INDEX {name audit_ref} ON {table audit} (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE TRIGGER {name audit_no_update} BEFORE UPDATE ON {table audit} BEGIN SELECT raise(ABORT, 'idempo: the audit is append-only'); END;
CREATE TRIGGER {name audit_no_delete} BEFORE DELETE ON {table audit} BEGIN SELECT raise(ABORT, 'idempo: the audit is append-only'); END;

-- down
-- only while empty: audit
DROP TRIGGER {name audit_no_update};
DROP TRIGGER {name audit_no_delete};
DROP INDEX {name audit_ref};
ALTER TABLE {table audit} DROP COLUMN role;
ALTER TABLE {table audit} DROP COLUMN channel;
ALTER TABLE {table audit} DROP COLUMN outcome;
ALTER TABLE {table audit} DROP COLUMN code;
ALTER TABLE {table audit} DROP COLUMN state_before;
ALTER TABLE {table audit} DROP COLUMN state_after;
ALTER TABLE {table audit} DROP COLUMN evidence;
