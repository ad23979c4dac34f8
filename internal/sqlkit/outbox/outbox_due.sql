-- The heads that are due, with what they weigh.
select seq, part, tenant, event_key, coalesce(length(payload), 0) from {table outbox_asides}
where group_name = $group and head = 1 and paused = 0 and due_at is not null and due_at <= $at and {list part}
order by due_at, seq limit $limit
