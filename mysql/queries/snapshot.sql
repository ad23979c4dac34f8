-- The transaction that began first. Its view of the database keeps old versions of rows.
select cast(trx_mysql_thread_id as char), timestampdiff(microsecond, '1970-01-01', convert_tz(trx_started, 'SYSTEM', '+00:00'))
from information_schema.innodb_trx
where trx_mysql_thread_id <> connection_id() and trx_mysql_thread_id > 0
order by trx_started
limit 1
