-- Where a stretch of the records in key order ends; no row: it is the last.
select tenant_id, operation, idempotency_key from {table records}
where tenant_id >= $after_tenant and (tenant_id > $after_tenant
        or operation >= $after_operation and (operation > $after_operation or idempotency_key > $after_key))
    and ($tenant = '' or tenant_id = $tenant)
order by tenant_id, operation, idempotency_key
limit 1 offset $offset
