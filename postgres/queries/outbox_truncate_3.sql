truncate only {table outbox_3}
