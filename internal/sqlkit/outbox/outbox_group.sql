select topics, external, slot_name, epoch, paused, paused_topics, identity, created_at from {table outbox_groups} where name = $group {lock}
