update {table outbox_asides} set paused = $paused where group_name = $group and topic = $topic and paused <> $paused
