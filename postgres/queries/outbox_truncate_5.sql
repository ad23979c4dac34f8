truncate only {table outbox_5}
