-- Records after a key, in key order; what is filtered further is judged by the caller, on the effective state.
select {columns -response_body -snapshot}, coalesce($now, clock_timestamp())
from {table records}
where (tenant_id, operation, idempotency_key) > ($after_tenant, $after_operation, $after_key)
    and alias_of is null
    and ($tenant = '' or tenant_id = $tenant)
    and ($operation = '' or operation = $operation)
    and ($surface = '' or surface = $surface)
    and ($states = '' or state in (select unnest(string_to_array($states, ','))))
order by tenant_id, operation, idempotency_key
limit $limit
