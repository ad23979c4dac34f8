select attempt, generation, coalesce(state, ''), coalesce(surface, ''), coalesce(owner, ''), {when claimed_at}, {when started_at},
    {when lease_until}, {when completed_at}, failing, coalesce(status_code, 0), coalesce(note, ''), coalesce(trace, ''), {when ended_at}
from {table attempts}
where tenant_id = $tenant_id and operation = $operation and idempotency_key = $idempotency_key
order by generation, attempt
