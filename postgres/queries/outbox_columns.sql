select a.attname::text, format_type(a.atttypid, a.atttypmod) from pg_attribute a
where a.attrelid = '{table outbox}'::regclass and a.attnum > 0 and not a.attisdropped
