-- A lane for this transaction alone, if it has a row.
select 1 from {table lanes} where tenant_id = $tenant_id and subscriber = $subscriber and lane = $lane for update nowait
