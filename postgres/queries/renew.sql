-- A longer lease, never a shorter one, while the lease is alive. No row: not the claim's own, or over.
with t as materialized (
    select coalesce($now, clock_timestamp()) as now,
        set_config('lock_timeout', coalesce($timeout, current_setting('lock_timeout')), true)
)
update {table records} r set
    lease_until = greatest(r.lease_until, $lease_until),
    started_at = case when $begin then coalesce(r.started_at, t.now) else r.started_at end,
    derived_key = coalesce($derived_key, r.derived_key),
    changed_at = t.now
from t
where r.tenant_id = $tenant_id and r.operation = $operation and r.idempotency_key = $idempotency_key
    and r.token = $token and r.state = 'pending' and r.lease_until > t.now
returning {columns r}, t.now, pg_postmaster_start_time()
