-- About how many rows there are, as the server last saw it.
select greatest(reltuples, 0)::float8 from pg_class where oid = to_regclass($records)
