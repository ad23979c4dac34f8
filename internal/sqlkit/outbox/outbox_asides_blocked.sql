select count(*) from (select distinct tenant, event_key from {table outbox_asides} where group_name = $group and holds = 1 and event_key <> '') k
