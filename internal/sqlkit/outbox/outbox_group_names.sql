select name from {table outbox_groups} order by name
