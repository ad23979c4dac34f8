truncate only {table outbox_7}
