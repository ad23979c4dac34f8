select coalesce(sum(case when state = 'waiting' then 1 else 0 end), 0), coalesce(sum(case when state = 'queued' then 1 else 0 end), 0),
    coalesce(sum(case when state = 'dead' then 1 else 0 end), 0), coalesce(sum(case when state = 'waiting' and class = 'no_route' then 1 else 0 end), 0),
    coalesce(min(case when state = 'waiting' or state = 'queued' then appended_at end), 0),
    coalesce(min(case when state = 'dead' and holds = 1 then appended_at end), 0),
    coalesce(min(case when state = 'waiting' and class = 'no_route' then appended_at end), 0)
from {table outbox_asides} where group_name = $group
