-- Sets the watch of records anew that have moved on since it was set. It is no change of the record.
update {table records} set watch_at = case state
    when 'pending' then lease_until when 'expired' then coalesce(gone_at, $endless) when 'in_doubt' then $endless else expires_at end
where ($keys)
