update {table outbox_asides} set head = case when seq <= $first then 1 else 0 end
where group_name = $group and tenant = $tenant and event_key = $event_key and head <> case when seq <= $first then 1 else 0 end
