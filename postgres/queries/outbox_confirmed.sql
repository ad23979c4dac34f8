-- Whether a standby has on disk what the server had written at a place of its log.
select exists (select from pg_stat_replication r where r.flush_lsn >= $lsn::pg_lsn)
