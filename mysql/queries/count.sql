-- The first so many records by what they count as.
select what, count(*) from (
    select case
        when state in ('issued', 'failed') then if(expires_at <= $at, '', state)
        when state in ('completed', 'expired') then if(gone_at <= $at, '', if(state = 'expired' or expires_at <= $at, 'expired', 'completed'))
        when state = 'pending' and lease_until <= $at and started_at is not null and on_crash = 'hold' then 'in_doubt'
        else state end as what
    from {table records}
    where alias_of is null and ($tenant = '' or tenant_id = $tenant) and ($operation = '' or operation = $operation)
    limit $limit) as counted
group by what
