-- Transaction numbers of another server would be taken for those of this one.
update {table outbox} set xid = '3' where xid >= pg_snapshot_xmin($older::pg_snapshot)
