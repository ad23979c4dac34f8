-- Started owners that vanished, where nobody may run again: in doubt, so that lists and alarms see them.
update {table records} set state = 'in_doubt', changed_at = utc_timestamp(6), watch_at = $endless, rev = rev + 1
where ($keys)
    and state = 'pending' and lease_until <= utc_timestamp(6) and started_at is not null and on_crash = 'hold'
