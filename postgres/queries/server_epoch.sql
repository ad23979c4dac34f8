-- server where the server does not tell its timeline.
select pg_postmaster_start_time(), epoch, 0::bigint, 0::bigint from {table meta}
