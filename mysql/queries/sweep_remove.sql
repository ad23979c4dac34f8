-- Removes what is over, with its aliases. The rows are locked.
delete from {table records}
where ($keys)
    and (state in ('issued', 'failed') and expires_at <= utc_timestamp(6)
        or state in ('completed', 'expired') and gone_at <= utc_timestamp(6) or alias_of is not null)
