delete from {table outbox_groups} where name = $group
