truncate only {table outbox_10}
