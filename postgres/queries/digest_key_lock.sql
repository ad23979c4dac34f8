-- Processes that start at once compare their keys one after the other.
select pg_advisory_xact_lock(hashtextextended($lock_name, 0))
