truncate only {table outbox_4}
