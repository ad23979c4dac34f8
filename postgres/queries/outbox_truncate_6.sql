truncate only {table outbox_6}
