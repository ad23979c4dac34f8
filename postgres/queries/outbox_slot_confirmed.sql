-- Whether a replication slot has confirmed everything that the log of the server had when the newest event of the slot was there.
select case when s.slot_name is null then -1 when s.confirmed_flush_lsn >= $lsn::pg_lsn then 1 else 0 end
from (select 1) one left join pg_replication_slots s on s.slot_name = $slot_name
