-- Sets a lane's version; null leaves the one that is there.
insert into {table lanes} as l (tenant_id, subscriber, lane, version, created_at, changed_at)
select $tenant_id, $subscriber, $lane, $version, t.now, t.now from (select coalesce($now, clock_timestamp()) as now) t
on conflict (tenant_id, subscriber, lane) do update set version = excluded.version, changed_at = excluded.changed_at where excluded.version is not null
