-- About how many rows there are, aliases included.
select coalesce(table_rows, 0) from information_schema.tables where table_schema = database() and table_name = $table
