-- Running claims lose their owners, who may be of another time.
update {table records} set token = null, lease_until = least(lease_until, utc_timestamp(6)), changed_at = utc_timestamp(6),
    watch_at = least(coalesce(watch_at, utc_timestamp(6)), utc_timestamp(6)), rev = rev + 1
where state = 'pending' and token is not null
