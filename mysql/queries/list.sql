-- Records after a key, in key order; what is filtered further is judged by the caller, on the effective state.
select {columns -response_body -snapshot}, aliases, rev, $clock
from {table records}
where tenant_id >= $after_tenant and (tenant_id > $after_tenant
        or operation >= $after_operation and (operation > $after_operation or idempotency_key > $after_key))
    and alias_of is null
    and ($tenant = '' or tenant_id = $tenant)
    and ($operation = '' or operation = $operation)
    and ($surface = '' or surface = $surface)
    and ($any_state or state in ($states))
order by tenant_id, operation, idempotency_key
limit $limit
