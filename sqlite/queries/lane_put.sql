-- Sets a lane's version; NULL leaves the one that is there.
INSERT INTO {table lanes} (tenant_id, subscriber, lane, version, created_at, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)
ON CONFLICT (tenant_id, subscriber, lane) DO UPDATE SET version = excluded.version, changed_at = excluded.changed_at WHERE excluded.version IS NOT NULL
