-- Since when the sweeper could have done what it has not, among the rows whose watch is over.
select min(case state when 'pending' then {when lease_until} when 'completed' then {when expires_at}
    when 'expired' then {when gone_at} else {when expires_at} end)
from (select state, on_crash, lease_until, started_at, expires_at, gone_at, format
    from {table records} force index ({name records_watch})
    where watch_at <= $at order by watch_at limit $look) as r
where format <= 1 and (state in ('issued', 'failed', 'completed') and expires_at <= $at
    or state = 'expired' and gone_at <= $at
    or state = 'pending' and lease_until <= $at and on_crash = 'hold' and started_at is not null)
