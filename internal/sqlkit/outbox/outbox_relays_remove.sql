delete from {table outbox_relays} where group_name = $group
