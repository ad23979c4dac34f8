-- count in a share of the blocks of the table.
with t as materialized (select coalesce($now, clock_timestamp()) as now)
select w.what, count(*) from (
    select case
        when r.state in ('issued', 'failed') then case when r.expires_at <= t.now then '' else r.state end
        when r.state in ('completed', 'expired') then case when r.gone_at <= t.now then ''
            when r.state = 'expired' or r.expires_at <= t.now then 'expired' else 'completed' end
        when r.state = 'pending' and r.lease_until <= t.now and r.started_at is not null and r.on_crash = 'hold' then 'in_doubt'
        else r.state end as what
    from {table records} r tablesample system ($permille / 10.0), t
    where r.alias_of is null and r.tenant_id >= $tenant and ($tenant = '' or r.tenant_id <= $tenant)
        and ($operation = '' or r.operation = $operation)
    ) w
group by w.what
