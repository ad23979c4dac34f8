-- The slots of the log that hold something, with the newest event of each. How long a slot is follows the retention.
select s.n, (extract(epoch from x.at) * 1000000)::bigint, x.seq
from generate_series(0, 10) s (n)
cross join lateral (select o.appended_at as at, o.seq from {table outbox} o where o.slot = s.n order by o.seq desc limit 1) x
