-- Sets a lane's version; null leaves the one that is there.
insert into {table lanes} (tenant_id, subscriber, lane, version, created_at, changed_at) values ($tenant_id, $subscriber, $lane, $version, $at, $at)
on duplicate key update changed_at = if($version is null, changed_at, $at), version = coalesce($version, version)
