truncate only {table outbox_9}
