-- Who holds the oldest snapshot, so that dead rows stay. A session without one, and with a transaction id, holds what came after it.
select w.session, w.application, w.since
from (
    select a.pid::text as session, coalesce(a.application_name, '') as application, a.xact_start as since,
        greatest(age(a.backend_xmin), age(a.backend_xid)) as old
    from pg_stat_activity a
    where a.pid <> pg_backend_pid() and a.backend_type is distinct from 'autovacuum worker'
        and (a.backend_xmin is not null or a.backend_xid is not null) and (a.datname = current_database() or a.backend_type = 'walsender')
    union all
    select 'prepared transaction ' || p.gid, '', p.prepared, age(p.transaction) from pg_prepared_xacts p where p.database = current_database()
    union all
    select 'replication slot ' || r.slot_name, '', null, age(r.xmin) from pg_replication_slots r where r.xmin is not null
) w
order by w.old desc nulls last
limit 1
