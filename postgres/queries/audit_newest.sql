-- Rows of the audit before one, the newest first.
select id, at, actor, role, channel, action, outcome, code, coalesce(tenant_id, ''), coalesce(operation, ''), idempotency_key, coalesce(attempt, 0),
    coalesce(state_before, ''), coalesce(state_after, ''), reason, evidence
from {table audit}
where ($after_id = 0 or id < $after_id) and ($tenant = '' or tenant_id = $tenant) and ($operation = '' or operation = $operation)
    and ($actor = '' or actor = $actor) and ($action = '' or action = $action) and ($outcome = '' or outcome = $outcome)
    and ($since is null or at >= $since) and ($until is null or at < $until)
    and ($tenants is null or tenant_id in (select convert_from(decode(g, 'hex'), 'UTF8') from unnest(string_to_array($tenants, ',')) g))
order by id desc limit $limit
