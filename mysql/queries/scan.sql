-- Those of one stretch of the records, in key order, that may be meant.
select {columns r -response_body -snapshot}, r.aliases, r.rev, $clock
from (
    select tenant_id, operation, idempotency_key from {table records}
    where tenant_id >= $after_tenant and (tenant_id > $after_tenant
            or operation >= $after_operation and (operation > $after_operation or idempotency_key > $after_key))
        and ($tenant = '' or tenant_id = $tenant)
    order by tenant_id, operation, idempotency_key
    limit $limit
) s
join {table records} r on r.tenant_id = s.tenant_id and r.operation = s.operation and r.idempotency_key = s.idempotency_key
where r.alias_of is null
    and ($resource_kind = '' or r.resource_type = $resource_kind and r.resource_id = $resource_name or instr(r.refs, $needle) > 0)
    and ($traced = '' or instr(lower(convert(r.trace using latin1)), convert($traced using latin1)) > 0)
