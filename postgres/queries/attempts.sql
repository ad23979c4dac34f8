-- Each attempt as it ended first: one that was settled may come again when it is retried.
select distinct on (attempt) attempt, generation, coalesce(state, ''), coalesce(surface, ''), coalesce(owner, ''), claimed_at, started_at, lease_until, completed_at,
    failing, coalesce(status_code, 0), coalesce(note, ''), coalesce(trace, ''), ended_at
from {table attempts}
where tenant_id = $tenant_id and operation = $operation and idempotency_key = $idempotency_key
order by attempt, generation
