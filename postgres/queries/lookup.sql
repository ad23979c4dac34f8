-- read without the body.
select {columns -response_body}, coalesce($now, clock_timestamp()), pg_postmaster_start_time()
from {table records}
where tenant_id = $tenant_id and operation = $operation and idempotency_key = $idempotency_key
