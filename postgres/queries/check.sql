-- What the server must be like, for this role and database.
select name, case when name in ('synchronous_standby_names') and setting = '' then '' else setting end
from pg_settings
where name in ('fsync', 'full_page_writes', 'server_encoding', 'synchronous_commit', 'synchronous_standby_names',
    'server_version_num', 'transaction_read_only', 'default_transaction_read_only')
union all select 'recovery', pg_is_in_recovery()::text
union all select 'role', current_user
union all select 'schema', (to_regclass($records) is not null)::text
union all select 'migrations', (to_regclass($migrations) is not null)::text
