delete from {table outbox_cursors} where group_name = $group
