truncate only {table outbox_0}
