-- Rows of the audit in the order of their ids, or against it.
select id, {when at}, actor, role, channel, action, outcome, code, tenant_id, operation, idempotency_key, attempt,
    state_before, state_after, reason, evidence
from {table audit}
where $span and ($ref is null or idempotency_key between $ref and concat($ref, repeat(x'ff', 32)))
    and ($tenant = '' or tenant_id = $tenant) and ($operation = '' or operation = $operation)
    and ($actor = '' or actor = $actor) and ($action = '' or action = $action) and ($outcome = '' or outcome = $outcome)
    and ($since is null or at >= $since) and ($until is null or at < $until) and ($any_tenant or tenant_id in ($tenants))
order by id $direction limit $limit
