-- Which server this is: when it started, the epoch of the store, the cluster and its timeline, which a promotion makes anew.
select pg_postmaster_start_time(), m.epoch, s.system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint
from {table meta} m, pg_control_system() s
