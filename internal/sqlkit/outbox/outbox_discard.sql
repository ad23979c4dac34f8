insert into {table outbox_discarded} (topic, at) values ($topic, $at)
