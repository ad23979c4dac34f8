-- How big the tables are, as the server last saw it.
select coalesce(sum(data_length + index_length), 0) from information_schema.tables
where table_schema = database() and table_name in ($records, $attempts, $audit)
