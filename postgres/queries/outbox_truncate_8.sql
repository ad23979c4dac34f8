truncate only {table outbox_8}
