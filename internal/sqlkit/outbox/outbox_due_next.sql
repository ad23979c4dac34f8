select coalesce(min(due_at), 0) from {table outbox_asides}
where group_name = $group and head = 1 and paused = 0 and due_at is not null and due_at > $at and {list part}
