update {table outbox_groups} set topics = $topics, epoch = $epoch, paused = $paused, paused_topics = $paused_topics, identity = $identity where name = $group
