INSERT INTO {table counters} (span, start, process, data) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (span, start, process) DO UPDATE SET data = excluded.data
