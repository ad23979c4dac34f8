-- Records created in a stretch of time that may be meant, the newest first. The BRIN on created_at finds the blocks.
with t as materialized (select coalesce($now, clock_timestamp()) as now)
select {columns r -response_body -snapshot}, t.now
from {table records} r, t
where r.created_at >= $since and r.created_at < $until and r.alias_of is null
    and ($resource_kind = '' or r.resource_type = $resource_kind and r.resource_id = $resource_name or position(convert_to($needle, 'UTF8') in r.refs) > 0)
    and ($traced = '' or position($traced in lower(r.trace)) > 0)
    and ($tenant = '' or r.tenant_id = $tenant)
order by r.created_at desc, r.tenant_id, r.operation, r.idempotency_key
limit 1000
