-- Who keeps the oldest snapshot: rows that are gone cannot be cleaned away, and slots of the log wait.
select kind, text, age from (
    select 'session' as kind, format('pid %s, user %s, application %s, database %s, %s', a.pid, a.usename, a.application_name, a.datname, coalesce(a.state, a.backend_type)) as text,
        (extract(epoch from clock_timestamp() - a.xact_start) * 1000000)::bigint as age
    from pg_stat_activity a where a.pid <> pg_backend_pid() and a.xact_start is not null and (a.backend_xid is not null or a.backend_xmin is not null)
    union all
    select 'prepared', format('prepared transaction %s of %s, database %s', p.gid, p.owner, p.database), (extract(epoch from clock_timestamp() - p.prepared) * 1000000)::bigint
    from pg_prepared_xacts p
    union all
    select 'slot', format('replication slot %s, %s', s.slot_name, case when s.active then 'in use' else 'not in use' end), 0
    from pg_replication_slots s where s.xmin is not null or s.catalog_xmin is not null
) h where h.kind = 'slot' or h.age > 1000000 order by h.age desc limit 10
