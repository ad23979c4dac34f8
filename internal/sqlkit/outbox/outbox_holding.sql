-- The first event of a key that others wait for.
select coalesce(min(seq), 0) from {table outbox_asides} where group_name = $group and tenant = $tenant and event_key = $event_key and holds = 1
