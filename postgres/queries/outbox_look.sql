-- Where the outbox stands: what can be seen, the newest sequence value, and how far the log of the server is.
select pg_current_snapshot()::text, case when s.is_called then s.last_value else 0 end, (select token from {table outbox_alive}),
    (select g.epoch from {table outbox_groups} g where g.name = $group), case when pg_is_in_recovery() then '' else pg_current_wal_lsn()::text end
from {table outbox_seq} s
