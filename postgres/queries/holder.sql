-- Who holds the advisory lock of a key, which every open transaction does that has claimed it.
select a.pid::text, coalesce(a.application_name, ''), a.xact_start
from pg_locks l join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'advisory' and l.granted and l.objsubid = 1
    and l.database = (select oid from pg_database where datname = current_database())
    and l.classid::bigint = ($lock >> 32) & 4294967295 and l.objid::bigint = $lock & 4294967295
limit 1
