insert into {table outbox_groups} (name, topics, external, slot_name, epoch, paused, paused_topics, identity, created_at)
values ($group, $topics, $external, $slot_name, 1, 0, '', $identity, $at)
