-- What the server says of the log: whether it is a standby, and how much there is. Large logs are estimated.
select pg_is_in_recovery() or current_setting('transaction_read_only') = 'on', case when x.n <= 100000 then x.n else greatest(x.n, y.n) end, y.bytes
from (select count(*) as n from (select from {table outbox} limit 100001) l) x,
    (select coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint as n, coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint as bytes
    from pg_class c join pg_inherits i on i.inhrelid = c.oid where i.inhparent = '{table outbox}'::regclass) y
