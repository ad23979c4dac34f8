-- Which database this is. A copy made with the server's files has the same system identifier and is told by what its cursors have seen.
select s.system_identifier::text, (select oid from pg_database where datname = current_database())::text, pg_snapshot_xmax(pg_current_snapshot())::text
from pg_control_system() s
